"""Counts the steps of a PyTorch script, and stops it after as many as were asked for.

Each process counts for itself: ranks that train together take the same steps, so all stop after the same one and none
waits for another. The process that we started is stopped by `StopScript`; one that the script started itself by
`SystemExit(0)`, which is how multiprocessing and torchrun know a good end. Either way `finally` blocks run.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing import process, util
from typing import TYPE_CHECKING, Any

from viaduct.rehearsal.bounds import GRACE_S
from viaduct.rehearsal.hand_updates import UpdatesByHand
from viaduct.rehearsal.observe import Observation
from viaduct.rehearsal.plan import Plan, rank
from viaduct.rehearsal.progress import Progress
from viaduct.rehearsal.step_at import StepAt, parse_target
from viaduct.scripts.runner import StopScript
from viaduct.scripts.steps import OptimizerSteps, Watcher

if TYPE_CHECKING:
    import torch


class Counter(Watcher):
    """Counts, tells the observation, stops."""

    def __init__(self, plan: Plan, ours: bool) -> None:
        self.plan, self.ours = plan, ours
        self.observation = Observation(plan) if plan.observe else None
        self.taken = 0
        self.asked: float | None = None
        self._progress = Progress(plan.record, "steps")
        self.rank = 0  # as it is while steps are taken: at the end the process group may be gone
        self._optimizer: torch.optim.Optimizer | None = None
        self._steps = OptimizerSteps(self)
        self._by_hand = UpdatesByHand(self.on_backward_by_hand, self.on_step_by_hand, self.on_function)
        self._step_at = StepAt(parse_target(plan.step_at), self.count_step) if plan.step_at else None

    def start(self) -> None:
        if self.observation:
            self.observation.start()
        if self.plan.batches:
            bound_loaders(self.plan.batches)
        self._steps.__enter__()
        self._by_hand.start()
        if self._step_at:
            self._step_at.start()
        if not self.ours:
            register_end(self.finish)
        util.register_after_fork(self, Counter.start_again)

    def close(self) -> None:
        """Look no more."""
        self._steps.__exit__()
        self._by_hand.close()
        if self._step_at:
            self._step_at.close()
        if self.observation:
            self.observation.close()

    def start_again(self) -> None:
        """In a process that multiprocessing has forked: its steps are its own."""
        self.ours, self.taken, self.asked = False, 0, None
        register_end(self.finish)

    def on_backward_by_hand(self, trained: list[torch.Tensor]) -> None:
        if self.observation:
            self.observation.trained = trained
            if not self.taken:
                self.observation.keep_gradients()

    def on_function(self, loss: torch.Tensor, trained: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Gradients were computed by a function, which leaves nothing in `.grad`."""
        if self.observation:
            self.observation.keep_function(loss, trained, gradients if not self.taken else [])

    def on_step_by_hand(self) -> None:
        self.on_step_end(self.taken)

    def on_step_end(self, step: int) -> None:
        """An update is a step, unless the user has said where steps end."""
        if self._step_at is None:
            self.count_step()

    def on_update_begin(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        self._by_hand.has_optimizer = True
        if self.observation:
            self.observation.update_begins(step, optimizer)

    def on_update_end(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def count_step(self) -> None:
        if self.asked is not None:  # it has swallowed the stop and trains on; that is no part of the rehearsal
            self.stop()
        self.taken, self.rank = self.taken + 1, rank()
        self._progress.note(rank=self.rank, steps=self.taken)
        if self.observation:
            self.observation.step_ends(self.taken - 1, self._optimizer)
        if self.plan.steps and self.taken >= self.plan.steps:
            self.keep()
            self.asked = time.monotonic()
            if not self.ours:
                end_later()
            self.stop()

    def _settle_last_step(self) -> None:
        """Count the update by hand behind which no forward pass has come."""
        with contextlib.suppress(StopScript, SystemExit):
            self._by_hand.settle()

    def stop(self) -> None:
        raise StopScript if self.ours else SystemExit(0)

    def keep(self) -> None:
        """What was seen. At a stop it is kept at once: a script that swallows it goes on changing its weights."""
        if self.observation and self.asked is None:
            self.observation.write(self.rank)

    def finish(self, complete: bool = False) -> None:
        """A process that took no step (a data loader's) leaves nothing."""
        if self.asked is None:
            self._settle_last_step()
        if not self.taken:
            return
        self.keep()
        if self.plan.steps and self.taken >= self.plan.steps:
            leave_group()


def end_later() -> None:
    """A process of the script's own that does not stop, as `bounds.py` has it for the one that we have started."""
    timer = threading.Timer(GRACE_S, os._exit, (0,))
    timer.daemon = True
    timer.start()


def leave_group() -> None:
    """A script that we stopped had no chance to; gloo's threads would abort a process that ends with them."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def register_end(finish: Any) -> None:
    """multiprocessing ends its processes without `atexit`; it has functions of its own for that."""
    if process.parent_process() is None:
        atexit.register(finish)
    else:
        util.Finalize(None, finish, exitpriority=100)


def bound_loaders(batches: int) -> None:
    """Each pass over a DataLoader ends after so many batches; its length stays what it is."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader
    plain = loader.__iter__

    def bounded(self: Any) -> Iterator[Any]:
        return itertools.islice(plain(self), batches)

    loader.__iter__ = bounded
