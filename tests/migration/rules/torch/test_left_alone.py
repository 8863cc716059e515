"""Rows whose rule is to do nothing (P23, P24), and scripts that were migrated before."""

from __future__ import annotations

import pytest

from migration.checking import migrated

NEUTRAL = """\
import torch
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
torch.accelerator.synchronize()
x = torch.zeros(3, device=device)
"""
MPS = """\
import torch
if not args.no_mps and torch.backends.mps.is_available():
    device = torch.device("mps")
else:
    device = torch.device("cpu")
torch.mps.empty_cache()
"""
DONE = """\
import torch
import torch_npu
torch.npu.set_device(0)
x = torch.zeros(3, device="npu:0").npu()
print(x.is_npu)
"""


@pytest.mark.parametrize("text", [NEUTRAL, MPS], ids=["accelerator", "mps"])
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_device_neutral_code_and_branches_for_other_devices_are_left_alone(text: str, to: str) -> None:
    result = migrated(text, to=to)
    assert not result.changed
    assert not result.findings


def test_a_branch_for_the_cpu_keeps_its_structure() -> None:
    before = (
        "import torch\nif not torch.cuda.is_available():\n    print('using CPU, this will be slow')\nelse:\n    go()\n"
    )
    after = before.replace("torch.cuda", "torch.npu").replace("import torch\n", "import torch\nimport torch_npu\n")
    assert migrated(before).after.decode() == after


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_a_script_that_was_migrated_before_is_recognised(to: str) -> None:
    assert not migrated(DONE.replace("npu", to), to=to).changed


def test_the_run_time_patch_counts_as_an_import() -> None:
    before = "import torch\nimport torch_npu\nfrom torch_npu.contrib import transfer_to_npu\ntorch.cuda.synchronize()\n"
    assert migrated(before).after.decode() == before.replace("torch.cuda", "torch.npu")
