"""Copies from pinned memory to a CUDA device on a stream of their own, while the step before theirs runs.

    arrival = Arrival(device)
    images, numbers, read = arrival.of(lambda: (pinned.to(device, non_blocking=True), …))

What the work makes may be used on the stream that was current; `read` is the event after which the pinned memory may
be written again. A copy begins when the step before the last is done, so that no more than two batches are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Work = Callable[[], tuple[Tensor, Tensor]]


class Arrival:
    """Copies of batches to the device on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._before: Any = None  # after all that was asked of the device when the last batch came

    def of(self, work: Work) -> tuple[Tensor, Tensor, Any]:
        """Run the copy beside the step; return its tensors and the event after it."""
        here: Any = torch.cuda.current_stream(self._device)
        now = here.record_event()
        self._side.wait_event(self._before or now)  # the first copy waits for what it is normalised with
        self._before = now
        with torch.cuda.stream(self._side):
            batch = work()
            read = self._side.record_event()
        here.wait_event(read)
        for tensor in batch:
            tensor.record_stream(here)  # its memory is not used again before that stream is done with it
        return *batch, read
