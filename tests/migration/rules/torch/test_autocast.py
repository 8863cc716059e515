from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import torch\n"
HELPER = "from accelerator_device import accelerator\n"
DONE = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nwith torch.autocast(device_type=device.type): pass\n",
        "import torch\nwith torch.autocast('cpu', dtype=torch.bfloat16): pass\n",
        "import torch\ntorch.amp.GradScaler('cpu')\ntorch.amp.GradScaler(**{'device': 'cpu'})\n",
        "from mylib import autocast\nautocast('cuda')\n",
        "import torch\nwith torch.autocast(f'{kind}'): pass\n",
    ],
)
def test_a_device_that_is_not_cuda_stays(text: str) -> None:
    check_noop("torch.autocast", text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.autocast('cuda')", "torch.autocast('npu')"),
        ('torch.autocast(device_type="cuda", dtype=d)', 'torch.autocast(device_type="npu", dtype=d)'),
        ("torch.amp.autocast('cuda', enabled=e)", "torch.amp.autocast('npu', enabled=e)"),
        ("torch.autocast('cuda' if c else 'cpu')", "torch.autocast('npu' if c else 'cpu')"),
        ("torch.amp.GradScaler('cuda')", "torch.amp.GradScaler('npu')"),
        ("torch.amp.GradScaler(device='cuda', enabled=e)", "torch.amp.GradScaler(device='npu', enabled=e)"),
        ("torch.amp.GradScaler(enabled=e)", 'torch.amp.GradScaler(enabled=e, device="npu")'),
        ("torch.amp.GradScaler()", 'torch.amp.GradScaler(device="npu")'),
        ("torch.amp.custom_fwd(device_type='cuda')", "torch.amp.custom_fwd(device_type='npu')"),
    ],
)
def test_the_device_string_is_changed(before: str, after: str) -> None:
    check_rewrite("torch.autocast", f"{HEAD}x = {before}  # keep\n", f"{DONE}x = {after}  # keep\n")


def test_names_imported_from_torch_amp_are_known() -> None:
    before = "from torch.amp import GradScaler, autocast\nscaler = GradScaler('cuda')\nwith autocast('cuda'): pass\n"
    after = before.replace("'cuda'", "'mlu'").replace("autocast\n", "autocast\nimport torch_mlu\n", 1)
    check_rewrite("torch.autocast", before, after, to="mlu")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nwith torch.autocast(device.type):\n    pass\n",
        "import torch\nwith torch.autocast(device_type=kind, dtype=torch.bfloat16):\n    pass\n",
        "import torch\nwith torch.autocast('cpu'):\n    pass\n",
        "import torch\nscaler = torch.amp.GradScaler(device)\n",
        "from mine import autocast, GradScaler\nwith autocast():\n    scaler = GradScaler()\n",
    ],
)
def test_a_device_that_is_not_cuda_stays_for_any_card(source: str) -> None:
    check_noop("autocast", source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import torch", "torch.autocast('cuda')", "accelerator.autocast()"),
        ("import torch", "torch.autocast('cuda', d, on)", "accelerator.autocast(dtype=d, enabled=on)"),
        ("import torch", "torch.autocast(dtype=d, device_type='cuda')", "accelerator.autocast(dtype=d)"),
        ("import torch", "torch.amp.autocast(device_type='cuda', enabled=on)", "accelerator.autocast(enabled=on)"),
        (
            "from torch.amp import GradScaler",
            "GradScaler('cuda', init_scale=2.0)",
            "accelerator.GradScaler(init_scale=2.0)",
        ),
        ("from torch.amp import GradScaler", "GradScaler(enabled=on)", "accelerator.GradScaler(enabled=on)"),
        (
            "import torch",
            "torch.autocast('cuda' if on else 'cpu', dtype=d)",
            "torch.autocast(accelerator.card() if on else 'cpu', dtype=d)",
        ),
        (
            "import torch",
            "torch.amp.custom_fwd(device_type='cuda')(f)",
            "torch.amp.custom_fwd(device_type=accelerator.card())(f)",
        ),
    ],
)
def test_mixed_precision_becomes_the_available_cards(head: str, before: str, after: str) -> None:
    check_rewrite("autocast", f"{head}\nx = {before}  # kept\n", f"{head}\n{HELPER}x = {after}  # kept\n", to="any")


def test_arguments_that_are_not_seen_need_manual_review() -> None:
    check_says("autocast", "import torch\ntorch.autocast('cuda', **options)\n", "manual", "of the helper", to="any")


@pytest.mark.parametrize("to", ["npu", "any"])
@pytest.mark.parametrize("call", ["torch.amp.GradScaler(**options)", "torch.autocast(**options)"])
def test_a_device_among_unpacked_arguments_needs_manual_review(call: str, to: str) -> None:
    check_says("torch.autocast", f"import torch\n{call}\n", "manual", "arguments are unpacked here", to=to)
