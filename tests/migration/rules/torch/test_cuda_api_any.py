"""torch.cuda's functions, asked of the available card."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

RULE = "cuda_api"
HELPER = "from accelerator_device import accelerator\n"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.accelerator.synchronize()\n",
        "import torch\ntorch.backends.cudnn.benchmark = True\n",
        "from mine import cuda\ncuda.synchronize()\n",
        "import torch\n'''torch.cuda.synchronize()'''  # torch.cuda.empty_cache()\n",
        "import torch\nurl = 'https://example.org/torch.cuda.html'\n",
        "import torch\ncuda = torch.cuda\n",
    ],
)
def test_what_is_not_cudas_stays(source: str) -> None:
    check_noop(RULE, source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import torch", "torch.cuda.is_available()", "accelerator.is_available()"),
        ("import torch as t", "t.cuda.device_count() > 1", "accelerator.device_count() > 1"),
        ("import torch.cuda", "torch.cuda.Stream(priority=-1)", "accelerator.Stream(priority=-1)"),
        ("import torch.cuda as c", "c.memory_allocated()", "accelerator.memory_allocated()"),
        ("import torch", "torch.cuda.random.get_rng_state_all()", "accelerator.get_rng_state_all()"),
        ("import torch", "torch.cuda.FloatTensor if cuda else torch.FloatTensor", None),
        ("import torch", 'f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB"', None),
        ("import torch", "call(torch.cuda.synchronize)", "call(accelerator.synchronize)"),
    ],
)
def test_every_spelling(head: str, before: str, after: str | None) -> None:
    after = after or before.replace("torch.cuda.", "accelerator.")
    check_rewrite(RULE, f"{head}\nx = {before}\n", f"{head}\n{HELPER}x = {after}\n", to="any")


def test_an_import_that_served_it_goes() -> None:
    before = "import torch\nfrom torch import cuda\nfrom torch.cuda import synchronize\ncuda.init()\nsynchronize()\n"
    check_rewrite(RULE, before, f"import torch\n{HELPER}accelerator.init()\naccelerator.synchronize()\n", to="any")


def test_the_block_on_a_device_has_another_name() -> None:
    body = "with {}(1):\n    pass\n"
    check_rewrite(
        RULE,
        "import torch\n" + body.format("torch.cuda.device"),
        f"import torch\n{HELPER}" + body.format("accelerator.device_index"),
        to="any",
    )


def test_a_branch_that_asks_for_a_card_keeps_its_shape() -> None:
    before = """\
    import torch
    if not torch.cuda.is_available():
        print("using CPU")  # slow
    elif distributed:
        torch.cuda.set_device(gpu)
    """
    after = """\
    import torch
    from accelerator_device import accelerator
    if not accelerator.is_available():
        print("using CPU")  # slow
    elif distributed:
        accelerator.set_device(gpu)
    """
    check_rewrite(RULE, before, after, to="any")


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("torch.cuda.nvtx.range_push('a')", "high"),
        ("torch.cuda.CUDAGraph()", "high"),
        ("torch.cuda.comm.scatter(x)", "high"),
    ],
)
def test_what_cuda_alone_has_stays_and_is_named(name: str, risk: str) -> None:
    result = check_says(RULE, f"import torch\n{name}\n", "manual", "available on CUDA only", to="any")
    assert result.findings[0].risk == risk


def test_under_a_question_for_cuda_it_is_no_risk() -> None:
    source = f"import torch\n{HELPER}if accelerator.name() == 'cuda':\n    torch.cuda.nvtx.mark('a')\n"
    assert check_says(RULE, source, "manual", "available on CUDA only", to="any").findings[0].risk == "low"


def test_a_name_that_is_taken_is_not_taken_over() -> None:
    source = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\ntorch.cuda.synchronize()\n"
    after = migrated(source, RULE, to="any").after.decode()
    assert "from accelerator_device import accelerator as any_accelerator\n" in after
    assert "\nany_accelerator.synchronize()\n" in after
    assert "accelerator = Accelerator()\n" in after


def test_a_parameter_of_that_name_hides_it() -> None:
    source = "import torch\ntorch.cuda.synchronize()\ndef f(accelerator):\n    torch.cuda.empty_cache()\n"
    after = migrated(source, RULE, to="any").after.decode()
    assert "def f(accelerator):\n    any_accelerator.empty_cache()\n" in after


def test_the_module_as_a_value_is_left_to_a_person() -> None:
    check_says(RULE, "import torch\nuse(torch.cuda)\n", "manual", "as a module", to="any")


def test_a_default_type_is_not_taken_from_the_helper() -> None:
    """The NPU takes none; the rule of default types says so."""
    check_noop(RULE, "import torch\ntorch.set_default_tensor_type(torch.cuda.FloatTensor)\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = isinstance(x.data, torch.cuda.FloatTensor)", "a = isinstance(x.data, accelerator.types.FloatTensor)"),
        ("a = isinstance(x, (int, torch.cuda.HalfTensor))", "a = isinstance(x, (int, accelerator.types.HalfTensor))"),
        ("a = kind is torch.cuda.LongTensor", "a = kind is accelerator.types.LongTensor"),
        (
            "KINDS = [torch.cuda.FloatTensor]\na = type(x) in KINDS",
            "KINDS = [accelerator.types.FloatTensor]\na = type(x) in KINDS",
        ),
        ("x = torch.cuda.FloatTensor(3)", "x = accelerator.FloatTensor(3)"),
        (
            "KINDS = [torch.cuda.FloatTensor]\na = type(x) in KINDS\nx = KINDS[0](3)",
            "KINDS = [accelerator.FloatTensor]\na = type(x) in KINDS\nx = KINDS[0](3)",
        ),
    ],
)
def test_a_type_that_is_asked_for_is_not_the_one_of_the_cpu(before: str, after: str) -> None:
    check_rewrite(RULE, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")
