"""A sink: N steps on the device without returning to the host (`--sink N`, the seeds' iterations_per_loop).

A step is captured once as a graph of kernels and replayed; meanwhile the host makes the next batch, on a stream of its
own, and waits for nothing. What the steps have found is read once, at the end of the sink. A sink ends where somebody
looks: at a multiple of N, an evaluation, a checkpoint, the end of the run; an interruption ends it early.

    sink = build_sink(training)
    sink.take(batches)

With `--sink auto`, the default, a sink lasts about a second and ends at every log line, which comes as often as
without sinks; where no step can be captured there are none. With `--sink N` the host then drives each step, with the
same sinks. `obstacle` is the reason.
"""

from __future__ import annotations

import gc
import pickle
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

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
FIRST_LENGTH, LONGEST = 10, 1000  # steps of an automatic sink: before a step's time is known, and at most
SECONDS = 1.0  # that an automatic sink should take
MODULE_PARTS = frozenset(vars(nn.Module()))  # what torch itself keeps in each module
PLAIN_VALUES = (bool, int, float, str, type(None))


class Sink:
    """Takes the steps of a run N at a time."""

    def __init__(self, training: Training, length: int | None) -> None:
        """Make sinks of `length` steps; None: of about a second, measured while the run goes on."""
        self.training = training
        self.automatic = length is None
        self.longest = length or min(training.recipe.log.every_steps, LONGEST)
        self.length = length or min(FIRST_LENGTH, self.longest)
        self.obstacle = obstacle(training)
        self.feed = Feed(training.torch_device.type if self.obstacle is None else "cpu")
        self.capture: Callable[[Work], Work] = Capture(training.device, training.torch_device.type)
        self.device_step: DeviceStep | None = None
        self.replay: Work | None = None
        self.rehearsed = 0
        self.ready = False  # the optimizer has its state: an update was made, or a checkpoint was restored

    def describe_obstacle(self) -> str | None:
        """Return a line for the user on why the host drives each step; None if it does not."""
        if self.obstacle is None:
            return None
        return f"--sink {self.training.recipe.sink}: the host drives each step, because {self.obstacle}."

    def end(self) -> int:
        """Return the step at which this sink ends."""
        training, rules = self.training, self.training.recipe
        own = (rules.log.every_steps, training.pace.steps_per_epoch) if self.automatic else (self.length,)
        intervals = (*own, training.evaluation_every, rules.checkpoint.every_steps)
        ends = [next_multiple(training.step, steps) for steps in intervals if steps]
        return min(training.steps, training.step + self.length, *ends)

    def is_log_due(self) -> bool:
        """Return True if a log line belongs to the end of this sink: of an automatic one as without sinks."""
        return not self.automatic or self.training.step % self.training.recipe.log.every_steps == 0

    def take(self, batches: Iterator[Batch]) -> None:
        """Take the steps of one sink; none of their results has been read then."""
        training, first, end = self.training, self.training.step, self.end()
        self.ready = self.ready or bool(training.step and training.optimizer.state)
        began, settled = time.monotonic(), self.replay is not None
        while training.step < end and not self.called_off():
            count = self.on_device(end)
            if count:
                self.take_on_device(batches, count)
            else:
                self.take_from_host(batches)
            if training.step < end:
                training.hear_others()
        if self.automatic and settled and training.step > first:
            self.adapt((time.monotonic() - began) / (training.step - first))

    def adapt(self, step_seconds: float) -> None:
        """Choose the length of the next sinks from the time of a step."""
        self.length = max(1, min(self.longest, round(SECONDS / max(step_seconds, 1e-9))))

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
        step = self.device_step = self.device_step or DeviceStep(training, batch, self.longest)
        step.begin(count)
        try:
            while self.run(batch):
                training.marks.end_step()
                step.note()
                done += 1
                self.feed.ran()
                last = done == count
                if training.step < training.steps and not (last and training.at_epoch_end):
                    self.feed.prepare(batches)  # a callback may still change the order of the next epoch
                if last or self.called_off():
                    break
                batch = self.feed.now(batches)
        finally:  # also after an image that cannot be read: the steps before it are done, and are kept
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
        if self.training.observes(self.training.step + 1):
            step.observed = True
            try:
                self.feed.aside(step)
            finally:
                step.observed = False
            return True
        if self.rehearsed < REHEARSALS:
            before = read_host_state(self.training)
            self.feed.aside(step)
            self.rehearsed += 1
            if self.rehearsed == REHEARSALS:  # in the first one, parts may still set themselves up
                self.refuse_host_state(before)
            return True
        if self.obstacle is not None:
            return False
        if self.replay is None:
            try:
                step.capturing = True
                with self.training.marks.pause():
                    self.replay = self.capture(step)
            except RuntimeError as error:
                self.give_up(error)
                return False
            finally:
                step.capturing = False
        self.training.marks.begin_replay()
        self.replay()
        self.training.marks.end_replay()
        return True

    def capture_anew(self) -> None:
        """Forget the captured step: something that it reads on the host has changed."""
        self.replay = None

    def refuse_host_state(self, before: dict[str, Any]) -> None:
        """Capture no step that changes something in Python: a replay runs no Python."""
        after = read_host_state(self.training)
        changed = [name for name in after if name not in before or before[name] != after[name]]
        if changed:
            self.fall_back(f"each step changes {changed[0]} on the host, which a replay would not")

    def give_up(self, error: RuntimeError) -> None:
        """Let the host drive: what cannot be captured is found out only by trying."""
        self.training.optimizer.zero_grad(set_to_none=True)
        self.fall_back(f"a step of it cannot be captured ({first_line(cause_of(error))})")

    def fall_back(self, reason: str) -> None:
        self.obstacle = reason
        if line := self.describe_obstacle():
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


def build_sink(training: Training) -> Sink | None:
    """Return what takes this run's steps; None if the host takes them one by one."""
    length = training.recipe.sink
    if length == "auto":
        return Sink(training, None) if automatic_obstacle(training) is None else None
    return Sink(training, length) if length and not training.closely else None


def describe_sink(training: Training) -> str | None:
    """Return a line for the user where steps that could be captured, or were to be, are driven by the host."""
    asked = training.recipe.sink
    if training.sink is not None:
        return training.sink.describe_obstacle()
    if not asked or (asked == "auto" and training.device.graph_capture() is None):
        return None
    if training.closely:
        return f"--sink {asked}: not in this run, whose every step is looked at."
    return f"--sink {asked}: the host drives each step, because {automatic_obstacle(training)}."


def automatic_obstacle(training: Training) -> str | None:
    """Return why `--sink auto` means no sinks in this run; None if it has them."""
    if reason := obstacle(training):
        return reason
    if training.closely:
        return "a callback looks at every step"
    for callback in training.callbacks:
        if type(callback).step is not Callback.step and callback.every_step:
            return f"{type(callback).__name__}.step is called after each (every_step = False allows sinks)"
    return None


def obstacle(training: Training) -> str | None:
    """Return why no step of this run can be captured; None if nothing is known against it."""
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


def read_host_state(training: Training) -> dict[str, Any]:
    """Return what a step could change in Python: plain attributes of the network and the loss, random states."""
    found: dict[str, Any] = {}
    parts = training.computation.network.named_modules(prefix="network")
    for prefix, owner in [*parts, ("loss", training.loss)]:
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, PLAIN_VALUES):
                found[f"{prefix}.{name}"] = value
            elif isinstance(value, list | dict | set | deque) and name not in MODULE_PARTS:
                found[f"the size of {prefix}.{name}"] = len(value)
    found["Python's random numbers"] = random.getstate()
    found["NumPy's random numbers"] = pickle.dumps(np.random.get_state(legacy=False))
    if training.torch_device.type != "cpu":
        found["torch's random numbers on the CPU"] = torch.get_rng_state().numpy().tobytes()
    return found
