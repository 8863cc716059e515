"""Time points of a training step, for a profile (`profile_marks.ProfileMarks`); by default none is recorded.

The loop calls these at the places that docs/profile.md defines: `begin_forward` before the network runs on a batch that
is on the device, `end_backward` once the gradients are computed, `end_step` after the update. A step that is worked
through in parts calls the first two for each part: the first `begin_forward` and the last `end_backward` count. Of a
captured step the host sees the replay alone: `begin_replay` and `end_replay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from viaduct.data.batches import Batch


class StepMarks:
    """Default marks, which record nothing."""

    def fetch(self, batches: Iterator[Batch]) -> Batch:
        """Return the next batch; the host waits for it here."""
        return next(batches)

    def begin_forward(self) -> None: ...
    def watch_backward(self, loss: Tensor) -> None:
        """Look at the backward pass that is about to begin at this loss."""

    def end_backward(self) -> None: ...
    def end_step(self) -> None: ...
    def begin_replay(self) -> None: ...
    def end_replay(self) -> None: ...

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Record no time points within the block: a step is captured there, not taken."""
        yield
