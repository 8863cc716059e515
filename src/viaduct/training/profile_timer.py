"""Passes the time points of a run's steps to a `profiling.collector.Collector`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from viaduct.data.batches import Batch
from viaduct.errors import UnknownName
from viaduct.profiling.clocks import read_host_us
from viaduct.profiling.collector import Collector
from viaduct.training.step import StepTimer

if TYPE_CHECKING:
    from viaduct.training.loop import Training

# How the time points of a step are found, for the profile's page.
LOADER = "Loader wait: the host's time in which the training loop fetches its next batch."
FORWARD = "Forward start: before the network runs on a batch that is on the device."
BACKWARD = "Backward end: after the backward pass has returned."
BUCKETS = "Backward end: when all gradients are computed, before the wait for the last bucket of the other ranks."
UPDATE = "Iteration end: after the optimizer's update and what belongs to it (averaged weights, cast copies)."
REPLAY = "Captured steps: the forward start is the start of a step's replay, the iteration end is just after its end."


class ProfileTimer(StepTimer):
    """Passes the time points of the profiled steps to the collector."""

    def __init__(self, training: Training, collect: Callable[[], Collector | None]) -> None:
        """`collect` is called before each step until it returns the collector; it returns None before it is time."""
        self.training = training
        self.hooks = PointHooks("", "", self)
        self.replayed: set[int] = set()  # numbers of steps that were replayed
        self._collect = collect
        self._collector: Collector | None = None
        self._paused = False
        self._gradients_done = False  # True if the backward end of this step is marked already
        self._has_ranks = training.group.ranks > 1

    @property
    def active_collector(self) -> Collector | None:
        """The collector, while it collects time points; else None."""
        collector = self._collector
        return None if collector is None or collector.done or self._paused else collector

    def fetch_batch(self, batches: Iterator[Batch]) -> Batch:
        if self._collector is None:
            self._collector = self._collect()
        start = read_host_us()
        batch = next(batches)
        if self.active_collector:
            self.active_collector.mark_loader_wait(start, read_host_us())
        return batch

    def begin_forward(self) -> None:
        if self.active_collector and not self.hooks.forward:
            self.active_collector.mark_forward_start()

    def watch_backward(self, loss: Tensor) -> None:
        """Mark the end of the backward pass before the wait for the last bucket of the other ranks."""
        if self.active_collector and self._has_ranks and can_queue_callback():
            loss.register_hook(self._queue_end)  # type: ignore[no-untyped-call]

    def _queue_end(self, gradient: Tensor) -> None:
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(self._end_gradients)  # before DistributedDataParallel's own callback, which waits

    def _end_gradients(self) -> None:
        self._gradients_done = True
        if self.active_collector and not self.hooks.backward:
            self.active_collector.mark_backward_end()

    def end_backward(self) -> None:
        if self.active_collector and not self.hooks.backward and not self._gradients_done:
            self.active_collector.mark_backward_end()
        self._gradients_done = False

    def end_replay(self) -> None:
        """Mark the end of the replay as the backward end; `profile_callback.split_replays` estimates the true one."""
        if self.active_collector:
            self.replayed.add(self.training.step)
            self.active_collector.mark_backward_end()

    def end_step(self) -> None:
        if self.active_collector:
            start = time.monotonic()
            self.active_collector.mark_step_end()  # after the last step this evaluates what was recorded
            self.training.stopwatch.exclude(time.monotonic() - start)

    def note_interruption(self, kind: str) -> None:
        """Tell the collector that an evaluation or checkpoint lies between the last step and the coming one."""
        if self.active_collector:
            self.active_collector.mark_interruption(kind)

    @contextmanager
    def pause(self) -> Iterator[None]:
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def describe(self) -> list[str]:
        """Return how each time point was found."""
        waits = self._has_ranks and can_queue_callback()
        forward, backward = FORWARD, BUCKETS if waits else BACKWARD
        if self.hooks.forward:
            forward = f"Forward start: the forward pass of {self.hooks.forward!r} (fp_point)."
        if self.hooks.backward:
            backward = f"Backward end: the end of the backward pass of {self.hooks.backward!r} (bp_point)."
        found = [forward, backward, UPDATE, LOADER]
        return [*found, REPLAY] if self.replayed else found


def can_queue_callback() -> bool:
    """Return True if torch can call a function at the end of a backward pass."""
    engine = getattr(torch.autograd.Variable, "_execution_engine", None)
    return hasattr(engine, "queue_callback")


class PointHooks:
    """Hooks on the modules whose passes the user has named as start of the forward and end of the backward pass.

    They may run several times in a step: the collector keeps the first forward start and the last backward end.
    """

    def __init__(self, forward: str, backward: str, timer: ProfileTimer) -> None:
        """`forward` and `backward` are module names; empty if the user has named none."""
        self.forward, self.backward, self.timer = forward, backward, timer
        self._handles: list[Any] = []

    def attach(self, network: nn.Module) -> None:
        modules = dict(network.named_modules())
        if self.forward:
            self._handles.append(modules[self.forward].register_forward_pre_hook(self._mark_forward))
        if self.backward:
            module = modules[self.backward]
            self._handles.append(module.register_forward_pre_hook(self._hook_inputs))
            for parameter in module.parameters():
                if parameter.requires_grad:
                    self._handles.append(parameter.register_post_accumulate_grad_hook(self._mark_backward))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _mark_forward(self, module: nn.Module, inputs: Any) -> None:
        if self.timer.active_collector:
            self.timer.active_collector.mark_forward_start()

    def _hook_inputs(self, module: nn.Module, inputs: Any) -> None:
        for tensor in inputs:
            if self.timer.active_collector and isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(self._mark_backward)  # type: ignore[no-untyped-call]

    def _mark_backward(self, gradient: Tensor) -> None:
        if self.timer.active_collector:
            self.timer.active_collector.mark_backward_end()


def check_point(key: str, name: str, network: nn.Module) -> None:
    """Raise UnknownName if `name`, given for the option fp_point or bp_point (`key`), is no module of the network."""
    names = [known for known, _ in network.named_modules() if known]
    if name and name not in names:
        hints = f"{key} of PROFILING_OPTIONS must be a module of the network; empty: found automatically."
        raise UnknownName("module of this network", name, names, hints)
