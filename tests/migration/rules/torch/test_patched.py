"""The vendors' run-time patches beside code that is rewritten."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

PATCHES = {
    "npu": "from torch_npu.contrib import transfer_to_npu\n",
    "mlu": "import torch_mlu.utils.gpu_migration\n",
}


@pytest.mark.parametrize(
    "line", ["from torch_npu.contrib import module\n", "# transfer_to_npu\n", "x = 'gpu_migration'\n"]
)
def test_other_imports_are_no_patch(line: str) -> None:
    check_noop("torch.patched", f"import torch\n{line}")


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_the_patch_can_be_removed(to: str) -> None:
    check_says("torch.patched", f"import torch\n{PATCHES[to]}", "advice", "can be removed", to=to)


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_the_import_stays_and_the_rest_is_rewritten(to: str) -> None:
    text = f"import torch\n{PATCHES[to]}model = torch.nn.Linear(2, 2).cuda()\n"
    assert migrate_source(text, to=to).after.decode() == text.replace(".cuda()", f".{to}()")


def test_with_mode_patch_the_import_gets_no_advice() -> None:
    text = f"import torch\nimport torch_npu\n{PATCHES['npu']}x = torch.zeros(2).cuda()\n"
    assert not any(finding.rule == "torch.patched" for finding in migrate_source(text, mode="patch").findings)
