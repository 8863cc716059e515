"""Streams, and the times between events."""

from __future__ import annotations

import time

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_elapsed_time_of_events_is_the_time_between_them() -> None:
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        begin.record()
        time.sleep(0.02)
        end.record(stream)
    assert torch.npu.current_stream() == torch.npu.default_stream()
    torch.npu.synchronize()
    assert 20 <= begin.elapsed_time(end) < 2000
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        torch.npu.Event().elapsed_time(end)
    with pytest.raises(RuntimeError, match="recorded"):
        torch.npu.Event(enable_timing=True).elapsed_time(end)
    torch.ones(1).npu().record_stream(stream)
