"""The vendors' patches: after one import, cuda means the card."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from rehearsal.torch_stage.staged import on
from viaduct.rehearsal import limits


@on("npu")
def test_without_the_import_cuda_stays_refused() -> None:
    import torch_npu
    from torch_npu.contrib import __name__ as contrib

    assert contrib == "torch_npu.contrib"
    assert torch_npu.npu is torch.npu
    with pytest.raises(limits.CardRefuses):
        torch.ones(1).cuda()


@on("npu")
def test_transfer_to_npu_runs_a_cuda_script_on_the_npu(tmp_path: Path) -> None:
    import torch_npu
    from torch_npu.contrib import transfer_to_npu

    assert transfer_to_npu.__name__ == "torch_npu.contrib.transfer_to_npu"
    assert torch_npu.npu.is_available()
    assert torch.cuda.is_available()
    x = torch.ones(2).cuda()
    assert x.device.type == "npu"
    assert x.is_cuda
    assert torch.zeros(1, device="cuda:1").device == torch.device("npu:1")
    with torch.cuda.amp.autocast():
        assert (x @ x).dtype in (torch.float16, torch.float32)
        assert torch.nn.functional.linear(x[None], x[None]).dtype is torch.float16
    torch.distributed.init_process_group("nccl", rank=0, world_size=1, init_method=f"file://{tmp_path}/group")
    assert torch.distributed.get_backend() == "hccl"
    torch.distributed.all_reduce(x)
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location="cuda:0")["x"].device == torch.device("npu:0")
    assert limits.violations == []


@on("mlu")
def test_gpu_migration_runs_a_cuda_script_on_the_mlu() -> None:
    import torch_mlu.utils.gpu_migration

    assert torch_mlu.mlu.is_available()
    assert torch.nn.Linear(2, 2).cuda().weight.device == torch.device("mlu:0")
    assert torch.ones(1).to("cuda").is_mlu
