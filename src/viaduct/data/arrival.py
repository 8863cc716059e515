"""Copies from pinned memory to a CUDA device on a side stream, while the step of the batch before runs.

    arrival = Arrival(device)
    images, labels, read_event = arrival.run_copy(lambda: (pinned.to(device, non_blocking=True), …))

The copied tensors may be used on the stream that was current at the call. After `read_event` the pinned memory may be
written again. A copy begins when the work that was queued before the previous copy is done, so that no more than two
batches are on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Copy = Callable[[], tuple[Tensor, Tensor]]


class Arrival:
    """Copies of batches to the device on a side stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._previous: Any = None  # event after all work that was queued when the previous batch was copied

    def run_copy(self, copy: Copy) -> tuple[Tensor, Tensor, Any]:
        """Call `copy` on the side stream; return its tensors, and the event after it."""
        main: Any = torch.cuda.current_stream(self._device)
        now = main.record_event()
        self._side.wait_event(self._previous or now)  # the first copy waits for mean and scale, which it reads
        self._previous = now
        with torch.cuda.stream(self._side):
            batch = copy()
            read_event = self._side.record_event()
        main.wait_event(read_event)
        for tensor in batch:
            tensor.record_stream(main)  # its memory is not used again before that stream is done with it
        return *batch, read_event
