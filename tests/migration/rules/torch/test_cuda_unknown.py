from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source


@pytest.mark.parametrize(
    "written", ["torch.cuda.jiterator", "torch.cuda.comm.broadcast(x, [0, 1])", "torch.cuda.nccl.version()"]
)
def test_a_name_that_is_in_no_table_is_unknown_on_the_npu(written: str) -> None:
    check_says("torch.cuda_unknown", f"import torch\nx = {written}\n", "manual", "not known to exist on the NPU")


def test_the_class_of_memory_errors_may_stay() -> None:
    text = "import torch\ntry: pass\nexcept torch.cuda.OutOfMemoryError: pass\n"
    check_says("torch.cuda_unknown", text, "advice", "may stay")
    assert "torch.mlu.OutOfMemoryError" in migrate_source(text, to="mlu").after.decode()


def test_an_unknown_name_is_found_through_an_import_that_was_moved() -> None:
    result = migrate_source("from torch import cuda\ncuda.synchronize()\ncuda.list_gpu_processes()\n")
    found = [finding for finding in result.findings if finding.rule == "torch.cuda_unknown"]
    assert [(finding.line, finding.status) for finding in found] == [(3, "manual")]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.cuda.synchronize()\ntorch.npu.set_compile_mode(jit_compile=False)\n",
        "import mycuda\nmycuda.cuda.jiterator()\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.cuda_unknown", text)


EVERYWHERE = ("npu", "mlu", "any")


def test_a_name_of_another_rule_is_reported_once() -> None:
    text = "import torch\ntorch.cuda.nvtx.range_push('a')\ntorch.cuda.DoubleTensor(3)\ng = torch.cuda.CUDAGraph()\n"
    manual = [(f.line, f.rule) for f in migrate_source(text).findings if f.status == "manual"]
    assert manual == [(2, "torch.nvtx"), (3, "torch.double"), (4, "torch.cuda_graphs")]


def test_every_finding_has_a_chinese_message() -> None:
    text = (
        "import torch\ntorch.cuda.jiterator\ntorch.cuda.get_device_capability()\ntorch.cuda.nvtx.mark('a')\n"
        "torch.cuda.DoubleTensor(1)\ntorch.compile(f)\ntorch.jit.script(f)\ntorch.channels_last\ntorch.version.cuda\n"
        "torch.cuda.CUDAGraph()\ntorch.cuda.get_device_properties(0).major\ntorch.backends.cudnn.benchmark = True\n"
    )
    for to in EVERYWHERE:
        found = migrate_source(text, to=to).findings
        assert found
        assert all(any("\u4e00" <= letter <= "\u9fff" for letter in finding.message_zh) for finding in found)
