"""Step counter of a PyTorch script: stops it after the requested number of steps.

Each process counts for itself: ranks that train together take the same steps, so all stop after the same one. A process
that viaduct started is stopped by `StopScript`. A process that the script started is stopped by `SystemExit(0)`, which
multiprocessing and torchrun take for success. Either way `finally` blocks run.
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
from viaduct.rehearsal.limits import blame_viaduct
from viaduct.rehearsal.manual_updates import ManualUpdates
from viaduct.rehearsal.observe import Observation
from viaduct.rehearsal.plan import Plan, current_rank
from viaduct.rehearsal.progress import Progress
from viaduct.rehearsal.step_at import StepEndTracer, parse_step_end
from viaduct.rehearsal.wrapping import wrap
from viaduct.scripts.runner import StopScript
from viaduct.scripts.steps import OptimizerSteps, Watcher

if TYPE_CHECKING:
    import torch


class TorchStepCounter(Watcher):
    """Counts steps, records observations, and stops the script; `OptimizerSteps` calls the `on_…` methods."""

    def __init__(self, plan: Plan, started_by_viaduct: bool) -> None:
        self.plan, self.started_by_viaduct = plan, started_by_viaduct
        self.observation = Observation(plan) if plan.observe else None
        self.step_count = 0
        self.stop_requested_at: float | None = None
        self._progress = Progress(plan.record_folder, "steps")
        self.rank = 0  # at the last step; at the script's end the process group may be gone
        self._optimizer: torch.optim.Optimizer | None = None  # that made the last update
        self._steps = OptimizerSteps(self)
        self._manual_updates = ManualUpdates(  # for scripts that update their weights without an optimizer
            self.on_manual_backward, lambda: self.on_step_end(self.step_count), self.on_gradient_function
        )
        self._step_at = StepEndTracer(parse_step_end(plan.step_at), self.count_step) if plan.step_at else None

    def start(self) -> None:
        """Install the hooks and wrappers that observe steps."""
        if self.observation:
            self.observation.start()
        if self.plan.batches:
            limit_loaders(self.plan.batches)
        self._steps.__enter__()
        self._manual_updates.start()
        if self._step_at:
            self._step_at.start()
        if not self.started_by_viaduct:
            register_at_exit(self.finish)
        util.register_after_fork(self, TorchStepCounter.reset_after_fork)

    def close(self) -> None:
        """Remove the hooks; wrapped functions stay wrapped."""
        self._steps.__exit__()
        self._manual_updates.close()
        if self._step_at:
            self._step_at.close()
        if self.observation:
            self.observation.close()

    def reset_after_fork(self) -> None:
        """Reset the counter in a process that multiprocessing has forked."""
        self.started_by_viaduct, self.step_count, self.stop_requested_at = False, 0, None
        register_at_exit(self.finish)

    @blame_viaduct()
    def on_manual_backward(self, trained: list[torch.Tensor]) -> None:
        """Record gradients of a script that updates its weights without an optimizer."""
        if self.observation:
            self.observation.trained = trained
            if not self.step_count:
                self.observation.record_gradients()

    @blame_viaduct()
    def on_gradient_function(
        self, loss: torch.Tensor, trained: list[torch.Tensor], gradients: list[torch.Tensor | None]
    ) -> None:
        """Record gradients of a function that does not set `.grad`, such as torch.autograd.grad."""
        if self.observation:
            self.observation.record_function_gradients(loss, trained, gradients if not self.step_count else [])

    def on_step_end(self, step: int) -> None:
        """Count an update as a step, unless --step-at names the end of a step."""
        if self._step_at is None:
            self.count_step()

    @blame_viaduct()
    def on_update_begin(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Stop the search for manual updates, and let the observation record the gradients."""
        self._manual_updates.has_optimizer_stepped = True
        if self.observation:
            self.observation.before_update(step, optimizer)

    def on_update_end(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Remember the optimizer that made the update."""
        self._optimizer = optimizer

    @blame_viaduct()
    def count_step(self) -> None:
        """Count one step; stop the script after the last one."""
        if self.stop_requested_at is not None:  # the script caught the stop's exception and trains on
            self.stop()
        self.step_count, self.rank = self.step_count + 1, current_rank()
        self._progress.note(rank=self.rank, steps=self.step_count)
        if self.observation:
            self.observation.end_step(self.step_count - 1, self._optimizer)
        if self.plan.steps and self.step_count >= self.plan.steps:
            self.write_observations()
            self.stop_requested_at = time.monotonic()
            if not self.started_by_viaduct:  # no `Bounds` ends this process if it ignores the stop
                timer = threading.Timer(GRACE_S, os._exit, (0,))
                timer.daemon = True
                timer.start()
            self.stop()

    def stop(self) -> None:
        raise StopScript if self.started_by_viaduct else SystemExit(0)

    def write_observations(self) -> None:
        """Write the observations; after a requested stop they are written already, and further steps do not count."""
        if self.observation and self.stop_requested_at is None:
            self.observation.write(self.rank)

    def finish(self, ran_to_end: bool = False) -> None:
        """Write the observations at the script's end; a process without steps writes none.

        `ran_to_end` has no effect here; `counting_tf1.py` uses it.
        """
        if self.stop_requested_at is None:
            with contextlib.suppress(StopScript, SystemExit):
                self._manual_updates.check_for_update()  # one that no forward or backward pass has followed
        if not self.step_count:
            return
        self.write_observations()
        if self.plan.steps and self.step_count >= self.plan.steps:
            from torch import distributed

            if distributed.is_available() and distributed.is_initialized():
                distributed.destroy_process_group()  # otherwise gloo's threads abort the stopping process


def register_at_exit(finish: Any) -> None:
    """Register a function for the end of the process; multiprocessing does not run `atexit`."""
    if process.parent_process() is None:
        atexit.register(finish)
    else:
        util.Finalize(None, finish, exitpriority=100)


def limit_loaders(batches: int) -> None:
    """End each pass over a DataLoader after `batches` batches; `len` of the loader stays unchanged."""
    from torch.utils.data import DataLoader

    @wrap(DataLoader, "__iter__")
    def iterate_limited(plain: Any, self: Any) -> Iterator[Any]:
        return itertools.islice(plain(self), batches)
