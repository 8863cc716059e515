"""Code that already serves CUDA and the target, or any device, keeps its branches."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import migrate_source

BOTH = {
    "types": """
        def wait(device):
            if device.type == "cuda":
                torch.cuda.synchronize()
            elif device.type == "npu":
                torch.npu.synchronize()
        """,
    "the card first": """
        def wait(device):
            if device.type == "npu":
                torch.npu.synchronize()
            elif device.type == "cuda":
                torch.cuda.synchronize()
            else:
                pass
        """,
    "a branch between": """
        if torch.cuda.is_available():
            device = torch.device("cuda")
        elif torch.backends.mps.is_available():
            device = torch.device("mps")
        elif torch.npu.is_available():
            device = torch.device("npu")
        """,
    "else is CUDA": """
        if is_npu_available():
            torch.npu.empty_cache()
        else:
            torch.cuda.empty_cache()
        """,
    "asked the other way": """
        if device.type != "npu":
            model = model.cuda()
        else:
            model = model.npu()
        """,
    "returns": """
        def pick():
            if is_torch_npu_available():
                return "npu"
            if torch.cuda.is_available():
                return "cuda"
            return "cpu"
        """,
    "returns, CUDA first": """
        def pick():
            if torch.cuda.is_available():
                return torch.device("cuda")
            if hasattr(torch, "npu") and torch.npu.is_available():
                return torch.device("npu")
            return torch.device("cpu")
        """,
    "seeds": """
        def seed(n):
            torch.cuda.manual_seed_all(n)
            if hasattr(torch, "npu"):
                torch.npu.manual_seed_all(n)
        """,
    "choice": 'device = "npu" if is_npu_available() else "cuda" if torch.cuda.is_available() else "cpu"\n',
    "choice, CUDA first": 'device = "cuda" if torch.cuda.is_available() else "npu" if has_npu else "cpu"\n',
    "either": "fast = torch.cuda.is_available() or torch.npu.is_available()\n",
    "table of backends": """
        import torch.distributed as dist
        BACKENDS = {"cuda": "nccl", "npu": "hccl", "cpu": "gloo"}
        dist.init_process_group(BACKENDS[device.type])
        """,
    "table with a default": """
        import torch.distributed as dist
        dist.init_process_group(backend={"cuda": "nccl", "npu": "hccl"}.get(kind, "gloo"))
        """,
    "kinds": """
        CARDS = ("cuda", "npu", "mps")
        fast = device.type in ("cuda", "npu")
        """,
    "choices": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cuda", choices=["cpu", "cuda", "npu"])
        """,
    "helpers": """
        def is_cuda_available():
            return torch.cuda.is_available()
        def is_npu_available():
            return torch.npu.is_available()
        """,
    "classes": """
        class CudaTimer:
            def now(self):
                torch.cuda.synchronize()
        class NpuTimer:
            def now(self):
                torch.npu.synchronize()
        """,
    "match": """
        match device.type:
            case "cuda":
                torch.cuda.synchronize()
            case "npu":
                torch.npu.synchronize()
        """,
    "tried": """
        try:
            import torch_npu
            torch.npu.set_device(0)
        except ImportError:
            torch.cuda.set_device(0)
        """,
    "backends": """
        if is_npu_available():
            backend = "hccl"
        else:
            backend = "nccl"
        """,
}


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("way", BOTH)
def test_a_place_for_both_cards_is_left_alone_and_listed(way: str, to: str) -> None:
    text = "import torch\n" + dedent(BOTH[way])
    if to == "mlu":
        text = text.replace("npu", "mlu").replace("Npu", "Mlu").replace("hccl", "cncl")
    result = migrate_source(text, to=to)
    assert result.after.decode() == text
    assert {finding.rule for finding in result.findings if finding.status != "advice"} == set()
    assert any(finding.rule == "torch.already" for finding in result.findings), result.findings


@pytest.mark.parametrize("way", BOTH)
def test_another_card_than_the_target_protects_nothing(way: str) -> None:
    """Code for CUDA and the MLU has no branch for the NPU yet."""
    text = ("import torch\n" + dedent(BOTH[way])).replace("npu", "mlu").replace("Npu", "Mlu").replace("hccl", "cncl")
    result = migrate_source(text, to="npu")
    assert result.changed or any(finding.status in ("manual", "unresolved") for finding in result.findings)


def test_code_for_cuda_outside_of_such_places_is_migrated() -> None:
    text = "import torch\n" + dedent(BOTH["types"]) + "x = torch.ones(1).cuda()\ntorch.cuda.set_device(0)\n"
    after = migrate_source(text).after.decode()
    assert "x = torch.ones(1).npu()\ntorch.npu.set_device(0)\n" in after
    assert 'if device.type == "cuda":\n        torch.cuda.synchronize()' in after


def test_a_comparison_beside_such_places_asks_for_both() -> None:
    text = "import torch\n" + dedent(BOTH["types"]) + 'amp = device.type == "cuda"\nslow = device.type != "cuda"\n'
    after = migrate_source(text).after.decode()
    assert 'amp = device.type in ("cuda", "npu")\nslow = device.type not in ("cuda", "npu")\n' in after


def test_a_file_beside_its_twin_is_left_alone() -> None:
    text = "import torch\ndef wait():\n    torch.cuda.synchronize()\n"
    others = {"accel/npu_backend.py": text.replace("cuda", "npu"), "accel/__init__.py": ""}
    assert not migrate_source(text, path="accel/cuda_backend.py", others=others).changed
    assert migrate_source(text, path="accel/cuda_other.py", others=others).changed


@pytest.mark.parametrize(
    "text",
    [
        'if torch.npu.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"\n',  # half migrated
        'device = "cuda:0" if torch.npu.is_available() else "cpu"\n',
        "x = torch.zeros(3)\nif torch.npu.is_available():\n    x = x.cuda()\n",
        "if inputs.is_cuda:\n    torch.cuda.synchronize()\nelse:\n    wait(inputs)\n",  # inputs is no npu
        "if not torch.npu.is_available():\n    raise SystemExit\nmodel.cuda()\n",
        "torch.npu.set_device(0)\nmodel.cuda()\n",
    ],
)
def test_code_that_only_looks_so_is_migrated(text: str) -> None:
    after = migrate_source(f"import torch\n{text}").after.decode()
    assert "cuda" not in after, after


NEUTRAL = {
    "accelerator": """
        use = not args.no_accel and torch.accelerator.is_available()
        device = torch.accelerator.current_accelerator() if use else torch.device("cpu")
        loader = torch.utils.data.DataLoader(data, **({"pin_memory": True} if use else {}))
        model.to(device)
        """,
    "backend of the device": """
        import torch.distributed as dist
        backend = torch.distributed.get_default_backend_for_device(device)
        dist.init_process_group(backend=backend, device_id=device)
        """,
    "an option": "device = torch.device(args.device)\nmodel.to(device)\n",
    "a tensor's device": "mask = torch.ones(3, device=x.device)\ny = x.new_zeros(3).to(x.device)\n",
    "autocast by type": "with torch.autocast(device_type=device.type, dtype=torch.bfloat16):\n    model(x)\n",
    "else asks the accelerator": """
        if device.type == "cuda":
            torch.cuda.synchronize()
        else:
            torch.accelerator.synchronize()
        """,
    "else asks for the module": """
        if device.type == "cuda":
            free = torch.cuda.mem_get_info()[0]
        else:
            free = torch.get_device_module(device).mem_get_info()[0]
        """,
    "else looks the module up": """
        if x.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            getattr(torch, x.device.type).empty_cache()
        """,
}


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("way", NEUTRAL)
def test_device_neutral_code_is_left_alone(way: str, to: str) -> None:
    text = "import torch\n" + dedent(NEUTRAL[way])
    result = migrate_source(text, to=to)
    assert result.after.decode() == text
    assert {finding.rule for finding in result.findings if finding.status != "advice"} == set(), result.findings


@pytest.mark.parametrize("call", ["synchronize()", "set_device(0)", "reset_peak_memory_stats()"])
def test_a_call_that_fails_without_cuda_is_no_twin_of_the_cards(call: str) -> None:
    """Both statements run: the one for CUDA was forgotten when the script was migrated by hand."""
    source = f"import torch\nimport torch_npu\ntorch.npu.{call}\ntorch.cuda.{call}\n"
    assert "torch.cuda" not in migrate_source(source).after.decode()


def test_seeds_for_both_cards_stay() -> None:
    source = "import torch\nimport torch_npu\ntorch.npu.manual_seed_all(1)\ntorch.cuda.manual_seed_all(1)\n"
    assert migrate_source(source).after.decode() == source


def test_a_branch_that_is_migrated_is_not_requested_by_cuda_too() -> None:
    """The file serves both cards elsewhere; on CUDA the card's call would fail."""
    source = """
        import torch
        device = torch.accelerator.current_accelerator()
        if device.type == "cuda":
            torch.cuda.synchronize()
        else:
            torch.accelerator.synchronize()
        def wait(d):
            if d.type == "cuda":
                torch.cuda.synchronize(d)
        pin = device.type == "cuda"
        """
    result = migrate_source(dedent(source))
    after = result.after.decode()
    assert 'if d.type == "npu":\n        torch.npu.synchronize(d)' in after
    assert 'pin = device.type in ("cuda", "npu")' in after
    assert "unresolved" not in {location.state for location in result.places}


def test_a_statement_within_a_longer_one_is_no_twin() -> None:
    source = "import torch\nimport torch_npu\ndef f(x, idx, npu):\n    if npu:\n        idx.npu()\n    x.cuda()\n"
    assert migrate_source(source).after.decode() == source.replace("x.cuda()", "x.npu()")
