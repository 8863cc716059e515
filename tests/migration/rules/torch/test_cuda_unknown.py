from __future__ import annotations

import pytest

from migration.checking import check_says, migrated


@pytest.mark.parametrize(
    "written", ["torch.cuda.jiterator", "torch.cuda.comm.broadcast(x, [0, 1])", "torch.cuda.nccl.version()"]
)
def test_a_name_that_is_in_no_table_is_unknown_on_the_npu(written: str) -> None:
    check_says("torch.cuda_unknown", f"import torch\nx = {written}\n", "manual", "not known to exist on the NPU")


def test_the_class_of_memory_errors_may_stay() -> None:
    text = "import torch\ntry: pass\nexcept torch.cuda.OutOfMemoryError: pass\n"
    check_says("torch.cuda_unknown", text, "advice", "may stay")
    assert "torch.mlu.OutOfMemoryError" in migrated(text, to="mlu").after.decode()


def test_an_unknown_name_is_found_through_an_import_that_was_moved() -> None:
    result = migrated("from torch import cuda\ncuda.synchronize()\ncuda.list_gpu_processes()\n")
    found = [finding for finding in result.findings if finding.rule == "torch.cuda_unknown"]
    assert [(finding.line, finding.status) for finding in found] == [(3, "manual")]
