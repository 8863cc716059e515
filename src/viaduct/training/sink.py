"""A sink: N steps on the device without returning to the host (`--sink N`, the seeds' iterations_per_loop).

A step is captured once as a graph of kernels and replayed; meanwhile the host makes the next batch, on a stream of its
own, and waits for nothing. What the steps have found is read once, at the end of the sink. A sink ends where somebody
looks: at a multiple of N, an evaluation, a checkpoint, the end of the run; an interruption ends it early.

    Sink(training).take(batches)

Where nothing can be captured, the host drives each step as always, with the same sinks: `obstacle` says why.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from viaduct.data.batches import Batch
from viaduct.devices.base import Device, first_line
from viaduct.training.callbacks import Callback
from viaduct.training.device_step import DeviceStep
from viaduct.training.lars import LarsOptimizer
from viaduct.training.light import AdamW, is_plain_sgd
from viaduct.training.rmsprop import TfRmsProp
from viaduct.training.thor import ThorOptimizer

if TYPE_CHECKING:
    from viaduct.training.loop import Training

Work = Callable[[], None]
REHEARSALS = 2  # steps that run as they will be captured, before they are: libraries settle what they do the first time
AHEAD = 2  # steps that the host may be ahead: one runs, the next one's pictures are being made


class Sink:
    """Takes the steps of a run N at a time."""

    def __init__(self, training: Training, length: int) -> None:
        self.training, self.length = training, length
        self.obstacle = obstacle(training)
        self.feed = Feed(training.torch_device.type if self.obstacle is None else "cpu")
        self.capture: Callable[[Work], Work] = Capture(training.device, training.torch_device.type)
        self.device_step: DeviceStep | None = None
        self.replay: Work | None = None
        self.rehearsed = 0
        self.ready = False  # an update was made in this process: the optimizer has its state

    def told(self) -> str | None:
        """What a person should know before the first step."""
        if self.obstacle is None:
            return None
        return f"--sink {self.length}: the host drives each step, because {self.obstacle}."

    def end(self) -> int:
        """The step at which this sink ends."""
        training = self.training
        every = (self.length, training.evaluation_every, training.recipe.checkpoint.every_steps)
        return min(training.steps, *(next_multiple(training.step, steps) for steps in every if steps))

    def take(self, batches: Iterator[Batch]) -> None:
        """The steps of one sink; nothing of them has been looked at then."""
        training, end = self.training, self.end()
        while training.step < end and not self.called_off():
            count = self.on_device(end)
            if count:
                self.take_on_device(batches, count)
            else:
                self.take_from_host(batches)
            if training.step < end:
                training.hear_others()

    def called_off(self) -> bool:
        return bool(self.training.interrupted() or self.training.stopping)

    def on_device(self, end: int) -> int:
        """How many of the coming steps need no host."""
        optimizer = self.training.optimizer
        if self.obstacle is not None or not self.ready:
            return 0
        if isinstance(optimizer, ThorOptimizer):
            frequency = optimizer.part.frequency
            refresh = -optimizer.steps % frequency  # steps until the next one that takes new factors
            return min(end - self.training.step, refresh)
        return end - self.training.step

    def take_from_host(self, batches: Iterator[Batch]) -> None:
        training = self.training
        skipped = training.scale.skipped
        training.take(self.feed.now(batches))
        self.ready = training.scale.skipped == skipped or self.ready

    def take_on_device(self, batches: Iterator[Batch], count: int) -> None:
        training, done = self.training, 0
        batch = self.feed.now(batches)
        step = self.device_step = self.device_step or DeviceStep(training, batch, self.length)
        step.begin(count)
        while self.run(batch):
            step.note()
            done += 1
            self.feed.ran()
            if training.step < training.steps:
                self.feed.prepare(batches)
            if done == count or self.called_off():
                break
            batch = self.feed.now(batches)
        step.tell(done)
        self.leave_rate()
        if self.obstacle is not None:  # found with the last batch: it is the host's, and so are all that follow
            training.take(batch)

    def run(self, batch: Batch) -> bool:
        """One step: replayed, or one of the first, which run as they will be captured. False: it cannot be."""
        step = self.device_step
        assert step is not None
        self.training.pulse.at("a sink", self.training.step + 1)
        step.load(batch)
        if self.rehearsed < REHEARSALS:
            self.feed.aside(step)
            self.rehearsed += 1
            return True
        if self.replay is None:
            try:
                step.capturing = True
                self.replay = self.capture(step)
            except RuntimeError as error:
                self.give_up(error)
                return False
            finally:
                step.capturing = False
        self.replay()
        return True

    def give_up(self, error: RuntimeError) -> None:
        """What cannot be captured is found out only by trying."""
        self.training.optimizer.zero_grad(set_to_none=True)
        self.obstacle = f"a step of it cannot be captured ({first_line(cause_of(error))})"
        if line := self.told():
            self.training.tell(line)

    def leave_rate(self) -> None:
        """The rate that a checkpoint keeps is that of the last step."""
        training = self.training
        training.step -= 1
        training.set_rate()
        training.step += 1


class Capture:
    """Makes a graph of what some work would do; the answer does it, as often as it is called."""

    def __init__(self, device: Device, kind: str) -> None:
        self.device, self.kind = device, kind

    def __call__(self, work: Work) -> Work:
        make: Any = self.device.graph_capture()
        vendor = getattr(torch, self.kind)
        # Threads that make the next batches may pin memory meanwhile; only what this thread does is watched.
        options = {"capture_error_mode": "thread_local"} if self.kind == "cuda" else {}
        graph, before = make(), vendor.current_stream()
        try:
            with garbage_kept(), vendor.graph(graph, **options):
                work()
        except BaseException:
            vendor.set_stream(before)
            renew_random_numbers(vendor)
            raise
        finally:
            vendor.set_stream(before)  # after an error torch leaves its own stream in place
        replay: Work = graph.replay
        return replay


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Nothing is collected meanwhile: an older graph among it would be destroyed, which no device allows while it
    captures another (pytorch/pytorch#161037)."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def renew_random_numbers(vendor: Any) -> None:
    """The device's generator would wait for ever for a graph that did not come: it gets another state, which stands
    where the old one stood."""
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
        self.made: Any = None  # the event after which the batch is there
        self.usual: Any = None  # the event after which is there what the usual stream made of an epoch
        self.running: deque[Any] = deque()

    def now(self, batches: Iterator[Batch]) -> Batch:
        """The batch of the coming step, for the stream that steps run on."""
        batch, self.batch = self.batch, None
        if batch is None:
            batch = next(batches)
            self.usual = self.event()
            return batch
        stream = self.vendor.current_stream()
        stream.wait_event(self.made)
        for tensor in (batch.images, batch.labels):
            tensor.record_stream(stream)  # its memory is not used again before that stream has read it
        return batch

    def ran(self) -> None:
        """A step was given to the device."""
        if self.vendor:
            self.running.append(self.event())

    def event(self) -> Any:
        """After all that the current stream was given so far."""
        if not self.vendor:
            return None
        event = self.vendor.Event()
        event.record()
        return event

    def prepare(self, batches: Iterator[Batch]) -> None:
        """Begin with the next batch, but never farther ahead than memory is meant for."""
        if not self.vendor:
            return
        if len(self.running) >= AHEAD:
            self.running.popleft().synchronize()
        if self.usual is not None:
            self.side.wait_event(self.usual)
            self.usual = None
        with self.vendor.stream(self.side):
            self.batch, self.made = next(batches), self.event()

    def aside(self, work: Work) -> None:
        """Some work on another stream than the usual one, as while it is captured."""
        if not self.vendor:
            work()
            return
        usual = self.vendor.current_stream()
        self.side.wait_stream(usual)
        with self.vendor.stream(self.side):
            work()
        usual.wait_stream(self.side)


def cause_of(error: BaseException) -> BaseException:
    """What was raised first: the end of a capture that has failed raises once more, and says less."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def next_multiple(step: int, of: int) -> int:
    return (step // of + 1) * of


def advice(training: Training) -> str | None:
    """Of a run without sinks that could have them: what a new user of such a device would miss."""
    if training.recipe.sink or training.closely or obstacle(training) is not None:
        return None
    return "Every step returns to the host; with --sink 100 the device takes a hundred by itself, often quicker."


def obstacle(training: Training) -> str | None:
    """Why no step of this run can be captured; None if there is nothing against it."""
    if training.device.graph_capture() is None:
        return f"{training.device.NAME} captures no graphs"
    if training.group.ranks > 1:
        return "several ranks take part"
    for callback in training.callbacks:
        if type(callback).forward is not Callback.forward:
            return f"{type(callback).__name__} looks at every forward pass"
    progress = getattr(training.computation.network, "set_progress", None)
    if callable(progress) and not hasattr(training.computation.network, "drop_path_progress"):
        return "the network is told its progress in every step"
    return obstacle_of_optimizer(training.optimizer, skips=training.scale.watching)


def obstacle_of_optimizer(optimizer: torch.optim.Optimizer, skips: bool) -> str | None:
    name = type(optimizer).__name__
    fused = all(group.get("fused") for group in optimizer.param_groups)
    if fused and (is_plain_sgd(optimizer) or type(optimizer) in (AdamW, torch.optim.AdamW)):
        return None
    if isinstance(optimizer, ThorOptimizer | torch.optim.AdamW) and not fused:
        return f"{name} has no fused form on this device, which could read its rate there"
    if not isinstance(optimizer, TfRmsProp | LarsOptimizer | ThorOptimizer) and not is_plain_sgd(optimizer):
        return f"{name} may ask the host for its rate"
    return f"{name} cannot skip a step by itself, as fp16 needs it" if skips else None
