"""Mixed precision in all its spellings."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrated

HEAD = "import torch\n"
DONE = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nwith torch.autocast(device_type=device.type): pass\n",
        "import torch\nwith torch.autocast('cpu', dtype=torch.bfloat16): pass\n",
        "import torch\ntorch.amp.GradScaler('cpu')\ntorch.amp.GradScaler(**options)\n",
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
    ("before", "after"),
    [
        ("torch.cuda.amp.autocast()", "torch.npu.amp.autocast()"),
        ("torch.cuda.amp.autocast(args.amp)", "torch.npu.amp.autocast(enabled=args.amp)"),
        ("torch.cuda.amp.autocast(True, torch.float16)", "torch.npu.amp.autocast(enabled=True, dtype=torch.float16)"),
        ("torch.cuda.amp.autocast(enabled=e, dtype=d)", "torch.npu.amp.autocast(enabled=e, dtype=d)"),
        ("torch.cuda.amp.autocast(e := f())", "torch.npu.amp.autocast(e := f())"),
        ("torch.cuda.amp.autocast(*flags)", "torch.npu.amp.autocast(*flags)"),
    ],
)
def test_a_flag_by_position_gets_its_name(before: str, after: str) -> None:
    check_rewrite("torch.amp", f"{HEAD}x = {before}\n", f"{DONE}x = {after}\n")


def test_the_mlu_has_cudas_order() -> None:
    result = migrated("from torch.cuda.amp import autocast\nwith autocast(use): pass\n", to="mlu")
    assert result.after.decode() == "from torch_mlu.mlu.amp import autocast\nwith autocast(use): pass\n"


def test_an_imported_autocast_gets_its_names_too() -> None:
    result = migrated("from torch.cuda.amp import GradScaler, autocast\nwith autocast(use): GradScaler(2.0)\n")
    after = "from torch_npu.npu.amp import GradScaler, autocast\nwith autocast(enabled=use): GradScaler(2.0)\n"
    assert result.after.decode() == after


def test_decorators_of_functions_follow() -> None:
    text = "import torch\n@torch.cuda.amp.custom_fwd\ndef forward(c, x): pass\n"
    assert "@torch.npu.amp.custom_fwd\n" in migrated(text).after.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.get_autocast_gpu_dtype()", "torch.npu.get_autocast_dtype()"),
        ("torch.set_autocast_gpu_dtype(d)", "torch.npu.set_autocast_dtype(d)"),
        ("torch.is_autocast_enabled()", "torch.npu.is_autocast_enabled()"),
    ],
)
def test_the_state_is_the_cards(before: str, after: str) -> None:
    check_rewrite("torch.autocast_state", f"{HEAD}x = {before}\n", f"{DONE}x = {after}\n")


def test_an_imported_getter_keeps_its_name_in_the_body() -> None:
    before = "from torch import get_autocast_gpu_dtype, nn\nx = get_autocast_gpu_dtype()\n"
    after = (
        "from torch_mlu.mlu import get_autocast_dtype as get_autocast_gpu_dtype\nfrom torch import nn\n"
        "x = get_autocast_gpu_dtype()\n"
    )
    check_rewrite("torch.autocast_state", before, after, to="mlu")


def test_a_state_that_is_asked_for_by_device_type_stays() -> None:
    check_noop(
        "torch.autocast_state", "import torch\nx = torch.is_autocast_enabled(kind)\ntorch.get_autocast_dtype('cpu')\n"
    )
