"""A sink: N steps on the device without returning to the host (`--sink N`; Ascend's `iterations_per_loop`).

A step is captured once as a graph of kernels and replayed; meanwhile the host makes the next batch, on a stream of its
own. It is at most two steps ahead of the device. Losses and hits are read after the sink. A sink ends at a multiple of
N, at an evaluation, at a checkpoint that is due by steps, and at the end of the run; an interruption ends it early.

    sink = build_sink(training)
    sink.run_steps(batches)

With `--sink auto`, the default, a sink lasts about a second and ends at every log line and every epoch; log lines come
as often as without sinks. If no step can be captured, `--sink auto` has no sinks; with `--sink N` the host drives each
step and log lines still come once a sink. `Sink.obstacle` is the reason.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from viaduct.data.batches import Batch
from viaduct.devices.base import Device, first_line
from viaduct.random_states import TORCH, read_random_states
from viaduct.training.callbacks import Callback
from viaduct.training.device_step import DeviceStep
from viaduct.training.step import TrainingStep

if TYPE_CHECKING:
    from viaduct.training.loop import Training

Work = Callable[[], None]
WARM_UP_STEPS = 2  # before the capture, run in the same way: libraries set themselves up the first time
AHEAD = 2  # steps that the host may be ahead: one runs, the images of the next are being made
FIRST_LENGTH, MAX_LENGTH = 10, 1000  # steps of an automatic sink: before a step's time is known, and at most
TARGET_SECONDS = 1.0  # of an automatic sink
MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # containers that torch itself keeps in each module
PLAIN_VALUES = (bool, int, float, str, type(None))


class Host(Protocol):
    """Methods of the loop that a sink calls between its steps."""

    def run_step(self, batch: Batch) -> None:
        """Take one step that the host drives."""

    def exchange_requests(self) -> None:
        """Receive the requests of the other ranks."""

    def is_stopping(self) -> bool:
        """Return True if no further step is to be begun."""
        ...

    def print_note(self, line: str) -> None:
        """Print a line for the user."""


class Sink:
    """Takes the steps of a run N at a time."""

    def __init__(
        self,
        step: TrainingStep,
        host: Host,
        device: Device,
        length: int | None,
        obstacle: str | None,
    ) -> None:
        """Make sinks of `length` steps; None: of about a second, measured while the run goes on."""
        self.step, self.host, self.progress, self.recipe = step, host, step.progress, step.recipe
        self.automatic = length is None
        self.longest = length or min(self.recipe.log.every_steps, MAX_LENGTH)
        self.length = length or min(FIRST_LENGTH, self.longest)
        self.obstacle = obstacle
        kind = step.computation.device.type
        self.feed = Feed(kind if obstacle is None else "cpu")
        self.capture: Callable[[Work], Work] = Capture(device, kind)
        self.device_step: DeviceStep | None = None
        self.replay: Work | None = None
        self.warmed_up = 0
        self.ready = False  # the optimizer has its state: an update was made, or a checkpoint was restored

    def describe_obstacle(self) -> str | None:
        """Return a line for the user on why the host drives each step; None if it does not."""
        if self.obstacle is None:
            return None
        return f"--sink {self.recipe.sink}: the host drives each step, because {self.obstacle}."

    def find_end(self) -> int:
        """Return the step at which this sink ends."""
        progress, rules = self.progress, self.recipe
        sink_ends = (rules.log.every_steps, progress.pace.steps_per_epoch) if self.automatic else (self.length,)
        intervals = (*sink_ends, progress.evaluation_every, rules.checkpoint.every_steps)
        ends = [next_multiple(progress.step, steps) for steps in intervals if steps]
        return min(progress.steps, progress.step + self.length, *ends)

    def is_log_due(self) -> bool:
        """Return True if a log line is due after this sink: always with `--sink N`, else every `log.every_steps`."""
        return not self.automatic or self.progress.step % self.recipe.log.every_steps == 0

    def run_steps(self, batches: Iterator[Batch]) -> None:
        """Take the steps of one sink; their losses and hits stay on the device."""
        progress, first, end = self.progress, self.progress.step, self.find_end()
        self.ready = self.ready or bool(progress.step and self.step.optimizer.state)
        began, was_captured = time.monotonic(), self.replay is not None
        while progress.step < end and not self.host.is_stopping():
            count = self.count_device_steps(end)
            if count:
                self.run_on_device(batches, count)
            else:
                self.run_on_host(batches)
            if progress.step < end:
                self.host.exchange_requests()
        if self.automatic and was_captured and progress.step > first:
            self.adapt_length((time.monotonic() - began) / (progress.step - first))

    def adapt_length(self, step_seconds: float) -> None:
        """Choose the length of the next sinks from the time of a step."""
        self.length = max(1, min(self.longest, round(TARGET_SECONDS / max(step_seconds, 1e-9))))

    def count_device_steps(self, end: int) -> int:
        """Return how many of the coming steps run on the device alone; 0: the host drives the next one."""
        if self.obstacle is not None or not self.ready:
            return 0
        return self.step.support.count_device_steps(end - self.progress.step)

    def run_on_host(self, batches: Iterator[Batch]) -> None:
        """Take one step that the host drives."""
        scale = self.step.scale
        skipped = scale.skipped
        self.host.run_step(self.feed.take_batch(batches))
        self.ready = scale.skipped == skipped or self.ready

    def run_on_device(self, batches: Iterator[Batch], count: int) -> None:
        """Take `count` steps on the device, or fewer if the run is stopped or a step cannot be captured.

        The batch of a step that cannot be captured is used by a step that the host drives.
        """
        progress, done = self.progress, 0
        batch = self.feed.take_batch(batches)
        step = self.device_step = self.device_step or DeviceStep(self.step, batch, self.longest)
        step.prepare(count)
        try:
            while self.run_device_step(step, batch):
                self.step.marks.end_step()
                step.count_step()
                done += 1
                self.feed.mark_step()
                last = done == count
                if progress.step < progress.steps and not (last and progress.is_epoch_end):
                    self.feed.prepare(batches)  # a callback may still change the order of the next epoch
                if last or self.host.is_stopping():
                    break
                batch = self.feed.take_batch(batches)
        finally:  # even after an image that cannot be read: the steps before it are done and count
            step.finish(done)
            # The rate that a checkpoint keeps is that of the last step.
            self.step.set_rates(progress.step - 1, round_rates=self.obstacle is None)
        if self.obstacle is not None:  # the batch that was fetched last has not been used yet
            self.host.run_step(batch)

    def run_device_step(self, step: DeviceStep, batch: Batch) -> bool:
        """Take one step on the device and return True; return False if no step can be captured.

        The first steps, and those whose gradients callbacks look at, run uncaptured on another stream.
        """
        number, marks = self.progress.step + 1, self.step.marks
        self.step.pulse.at("a sink", number)
        step.load(batch)
        if self.step.is_observed(number):
            step.observed = True
            try:
                self.feed.run_on_side_stream(step)
            finally:
                step.observed = False
            return True
        if self.warmed_up < WARM_UP_STEPS:
            before = read_host_state(self.step)
            self.feed.run_on_side_stream(step)
            self.warmed_up += 1
            if self.warmed_up == WARM_UP_STEPS:  # in the first one, parts may still set themselves up
                self.refuse_host_state(before)
            return True
        if self.obstacle is not None:
            return False
        if self.replay is None:
            try:
                step.capturing = True
                with marks.pause():
                    self.replay = self.capture(step)
            except RuntimeError as error:
                self.give_up(error)
                return False
            finally:
                step.capturing = False
        marks.begin_replay()
        self.replay()
        marks.end_replay()
        return True

    def discard_capture(self) -> None:
        """Capture the step anew: something that it reads on the host has changed."""
        self.replay = None

    def refuse_host_state(self, before: dict[str, Any]) -> None:
        """Fall back to the host if a step has changed something in Python: a replay runs no Python."""
        after = read_host_state(self.step)
        changed = [name for name in after if name not in before or before[name] != after[name]]
        if changed:
            self.fall_back(f"each step changes {changed[0]} on the host, which a replay would not")

    def give_up(self, error: RuntimeError) -> None:
        """Let the host drive all further steps after a capture that failed."""
        self.step.optimizer.zero_grad(set_to_none=True)
        self.fall_back(f"a step of it cannot be captured ({first_line(cause_of(error))})")

    def fall_back(self, reason: str) -> None:
        """Let the host drive all further steps, and say why."""
        self.obstacle = reason
        if line := self.describe_obstacle():
            self.host.print_note(line)


class Capture:
    """Captures some work as a graph; the returned function replays it."""

    def __init__(self, device: Device, kind: str) -> None:
        self.device, self.kind = device, kind

    def __call__(self, work: Work) -> Work:
        make: Any = self.device.graph_capture()
        vendor = getattr(torch, self.kind)
        # Loader threads may pin memory meanwhile, which the default mode would refuse.
        options = {"capture_error_mode": "thread_local"} if self.kind == "cuda" else {}
        graph, before = make(), vendor.current_stream()
        try:
            with pause_garbage_collection(), vendor.graph(graph, **options):
                work()
        except BaseException:
            vendor.set_stream(before)
            renew_generator(vendor)
            raise
        finally:
            vendor.set_stream(before)  # after an error torch leaves its own stream in place
        replay: Work = graph.replay
        return replay


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Collect garbage before the block and none within it.

    Collecting an older graph while another is captured is an error (pytorch/pytorch#161037).
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def renew_generator(vendor: Any) -> None:
    """Give the device's generator a copy of its state: a failed capture leaves the old one tied to its graph."""
    generators = getattr(vendor, "default_generators", ())
    if not generators or not hasattr(generators[0], "graphsafe_set_state"):
        return
    generator = generators[vendor.current_device()]
    fresh = torch.Generator(generator.device)
    fresh.set_state(generator.get_state())
    generator.graphsafe_set_state(fresh)


class Feed:
    """Makes the next batch while a step runs, on a stream of its own where the device has streams."""

    def __init__(self, kind: str) -> None:
        self.vendor: Any = getattr(torch, kind) if kind != "cpu" else None
        self.side: Any = self.vendor.Stream() if self.vendor else None
        self.batch: Batch | None = None
        self.batch_ready: Any = None  # event: the side stream has made `batch`
        self.fetched: Any = None  # event: the current stream has made a batch, and what its epoch keeps on the device
        self.running: deque[Any] = deque()  # events: the ends of steps that were given to the device

    def take_batch(self, batches: Iterator[Batch]) -> Batch:
        """Return the batch of the coming step, ready for the stream that steps run on."""
        batch, self.batch = self.batch, None
        if batch is None:
            batch = next(batches)
            self.fetched = self.record_event()
            return batch
        stream = self.vendor.current_stream()
        stream.wait_event(self.batch_ready)
        for tensor in (batch.images, batch.labels):
            tensor.record_stream(stream)  # its memory is not reused before that stream has read it
        return batch

    def mark_step(self) -> None:
        """Record that a step was given to the device."""
        if self.vendor:
            self.running.append(self.record_event())

    def record_event(self) -> Any:
        """Return an event that follows all work given to the current stream; None without streams."""
        if not self.vendor:
            return None
        event = self.vendor.Event()
        event.record()
        return event

    def prepare(self, batches: Iterator[Batch]) -> None:
        """Begin to make the next batch; wait first if the host is AHEAD steps ahead of the device."""
        if not self.vendor:
            return
        if len(self.running) >= AHEAD:
            self.running.popleft().synchronize()
        if self.fetched is not None:
            self.side.wait_event(self.fetched)
            self.fetched = None
        with self.vendor.stream(self.side):
            self.batch, self.batch_ready = next(batches), self.record_event()

    def run_on_side_stream(self, work: Work) -> None:
        """Run some work on another stream than the current one, as a capture does; directly without streams."""
        if self.vendor:
            run_on_stream(self.vendor, self.side, work)
        else:
            work()


def run_on_stream(vendor: Any, side: Any, work: Work) -> None:
    """Run some work on a side stream; it follows the current stream's work, and that stream waits for it."""
    current = vendor.current_stream()
    side.wait_stream(current)
    with vendor.stream(side):
        work()
    current.wait_stream(side)


def cause_of(error: BaseException) -> BaseException:
    """Return the error that was raised first: ending a failed capture raises a second, less specific one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def next_multiple(step: int, interval: int) -> int:
    """Return the first multiple of the interval after a step."""
    return (step // interval + 1) * interval


def build_sink(training: Training) -> Sink | None:
    """Return the sink of this run; None if the loop takes the steps one by one."""
    length = training.recipe.sink
    automatic = length == "auto"
    if not length or training.needs_every_step or (automatic and automatic_obstacle(training) is not None):
        return None
    obstacle = find_obstacle(training)
    return Sink(training.train_step, training, training.device, None if length == "auto" else length, obstacle)


def describe_sink(training: Training) -> str | None:
    """Return a line for the user on why the host drives each step; None if it does not.

    Also None with `--sink 0`, and with `--sink auto` on a device that captures no graphs.
    """
    requested = training.recipe.sink
    if training.sink is not None:
        return training.sink.describe_obstacle()
    if not requested or (requested == "auto" and training.device.graph_capture() is None):
        return None
    if training.needs_every_step:
        return f"--sink {requested}: not in this run, whose every step is looked at."
    return f"--sink {requested}: the host drives each step, because {automatic_obstacle(training)}."


def automatic_obstacle(training: Training) -> str | None:
    """Return why `--sink auto` means no sinks in this run; None if it has them."""
    if reason := find_obstacle(training):
        return reason
    if training.needs_every_step:
        return "a callback looks at every step"
    for callback in training.callbacks:
        if type(callback).step is not Callback.step and callback.every_step:
            return f"{type(callback).__name__}.step is called after each (every_step = False allows sinks)"
    return None


def find_obstacle(training: Training) -> str | None:
    """Return why no step of this run can be captured; None if nothing is known against it."""
    step = training.train_step
    if training.device.graph_capture() is None:
        return f"{training.device.NAME} captures no graphs"
    if step.parallel.capture_obstacle:
        return step.parallel.capture_obstacle
    for callback in training.callbacks:
        if type(callback).forward is not Callback.forward:
            return f"{type(callback).__name__} looks at every forward pass"
    network = step.computation.network
    if callable(getattr(network, "set_progress", None)) and not hasattr(network, "drop_path_progress"):
        return "the network is told its progress in every step"
    return step.support.find_capture_obstacle(skips_steps=step.scale.watching)


def read_host_state(step: TrainingStep) -> dict[str, Any]:
    """Return what a step could change in Python: attributes of the network's modules and of the loss, random states.

    Of attributes that are containers only the size is read.
    """
    attributes: dict[str, Any] = {}
    modules = step.computation.network.named_modules(prefix="network")
    for prefix, owner in [*modules, ("loss", step.loss)]:
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, PLAIN_VALUES):
                attributes[f"{prefix}.{name}"] = value
            elif isinstance(value, list | dict | set | deque) and name not in MODULE_ATTRIBUTES:
                attributes[f"the size of {prefix}.{name}"] = len(value)
    states = read_random_states()
    if step.computation.device.type == "cpu":
        del states[TORCH]  # on the CPU it is the device's own random state
    return attributes | states
