"""Counting of the memory of live tensors."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_memory_is_counted_while_it_lives() -> None:
    assert torch.npu.memory_allocated() == 0
    kept = torch.empty(1000, device="npu")
    assert torch.npu.memory_allocated() == 4000
    view = kept[10:]
    del kept
    assert torch.npu.memory_allocated() == 4000
    (view * 2).sum().item()
    assert torch.npu.max_memory_allocated() >= 4000 + 3960
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == torch.npu.memory_allocated() == 4000
    assert torch.npu.memory_allocated(1) == 0
    free, total = torch.npu.mem_get_info()
    assert total - free == 4000
    assert torch.npu.memory_stats()["allocated_bytes.all.current"] == 4000
    torch.npu.reset_accumulated_memory_stats()
    assert torch.npu.memory_stats()["allocation.all.current"] == 1
    assert torch.npu.memory_stats()["allocation.all.allocated"] == 0
    del view
    assert torch.npu.memory_allocated() == torch.accelerator.memory_allocated() == 0
