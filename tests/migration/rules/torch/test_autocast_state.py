from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import torch\n"
DONE = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.get_autocast_gpu_dtype()", "torch.npu.get_autocast_dtype()"),
        ("torch.set_autocast_gpu_dtype(d)", "torch.npu.set_autocast_dtype(d)"),
        ("torch.is_autocast_enabled()", "torch.npu.is_autocast_enabled()"),
    ],
)
def test_the_autocast_state_becomes_the_cards(before: str, after: str) -> None:
    check_rewrite("torch.autocast_state", f"{HEAD}x = {before}\n", f"{DONE}x = {after}\n")


def test_an_imported_getter_keeps_its_name_in_the_body() -> None:
    before = "from torch import get_autocast_gpu_dtype, nn\nx = get_autocast_gpu_dtype()\n"
    after = (
        "from torch_mlu.mlu import get_autocast_dtype as get_autocast_gpu_dtype\nfrom torch import nn\n"
        "x = get_autocast_gpu_dtype()\n"
    )
    check_rewrite("torch.autocast_state", before, after, to="mlu")


def test_a_state_read_by_device_type_stays() -> None:
    check_noop(
        "torch.autocast_state", "import torch\nx = torch.is_autocast_enabled(kind)\ntorch.get_autocast_dtype('cpu')\n"
    )
