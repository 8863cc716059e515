"""A sink: N steps on the device without returning to the host (`--sink N`; Ascend's `iterations_per_loop`).

A step is captured once as a graph of kernels and replayed. During a replay the host prepares the next batch on a side
stream; it is at most two steps ahead of the device. Losses and numbers of correct images are read after the sink. A
sink ends at a multiple of N steps of the run, at an evaluation, at a checkpoint that is due by steps, at the end of the
run, and at an interruption.

    sink, obstacle = build_sink(training)
    sink.run_steps(batches)

With `--sink auto`, the default, a sink lasts about a second and also ends at every log line and epoch. If it is known
at the start that no step can be captured, a run with `--sink auto` has no sinks; with `--sink N` the host drives each
step, and log lines are still written once every N steps. `Sink.obstacle` is the reason why no step can be captured.

In the code, `vendor` is torch's module for the device: torch.cuda, torch.npu or torch.mlu, with the same functions.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from viaduct.data.batches import Batch
from viaduct.devices.base import Device, summarise_error
from viaduct.profiling.recorder import disable_garbage_collector
from viaduct.random_states import TORCH_CPU, read_random_states
from viaduct.training.callbacks import Callback
from viaduct.training.device_step import DeviceStep
from viaduct.training.step import TrainingStep

if TYPE_CHECKING:
    from viaduct.training.loop import Training

Work = Callable[[], None]  # function that launches the kernels of one step
WARM_UP_STEPS = 2  # steps that run uncaptured on a side stream before the capture, so that libraries initialise
MAX_AHEAD = 2  # steps that the host may be ahead: the device runs one, and prepares the images of the next
FIRST_LENGTH, MAX_LENGTH = 10, 1000  # with `--sink auto`: steps of the first sinks, and at most of any sink
TARGET_SECONDS = 1.0  # duration of a sink with `--sink auto`
MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # attributes that torch gives each module, such as `_parameters`
PLAIN_VALUES = (bool, int, float, str, type(None))


class Sink:
    """Takes the steps of a run N at a time; such a group of steps is called a sink, too."""

    def __init__(self, training: Training, length: int | None, obstacle: str | None) -> None:
        """Take sinks of `length` steps, or with None (`--sink auto`) of about a second."""
        self.training, self.step = training, training.train_step
        self.progress, self.recipe = training.progress, training.recipe
        self.is_automatic = length is None
        self.longest = length or min(self.recipe.log.every_steps, MAX_LENGTH)
        self.length = length or min(FIRST_LENGTH, self.longest)
        self.obstacle = obstacle
        self.feed = BatchFeed(training.torch_device.type if obstacle is None else "cpu")  # "cpu": without streams
        self.capture: Callable[[Work], Work] = partial(capture_graph, training.device)
        self.device_step: DeviceStep | None = None
        self.replay: Work | None = None
        self.warmed_up = 0  # warm-up steps taken so far
        self.has_optimizer_state = False  # False until the optimizer has its momenta, which a captured step updates

    def find_end(self) -> int:
        """Return the step at which this sink ends."""
        progress, recipe = self.progress, self.recipe
        if self.is_automatic:
            sink_ends: tuple[int, ...] = (recipe.log.every_steps, progress.run_length.steps_per_epoch)
        else:
            sink_ends = (self.length,)
        intervals = (*sink_ends, progress.evaluation_every, recipe.checkpoint.every_steps)
        ends: list[int] = [(progress.step // steps + 1) * steps for steps in intervals if steps]  # next multiples
        return min(progress.steps, progress.step + self.length, *ends)

    def is_log_due(self) -> bool:
        """Return True if a log line is due after this sink: always with `--sink N`, else every `log.every_steps`."""
        return not self.is_automatic or self.progress.step % self.recipe.log.every_steps == 0

    def run_steps(self, batches: Iterator[Batch]) -> None:
        """Take the steps of one sink; their losses and correct images stay on the device."""
        progress, first, end = self.progress, self.progress.step, self.find_end()
        self.has_optimizer_state = self.has_optimizer_state or bool(progress.step and self.step.optimizer.state)
        started_at, was_captured = time.monotonic(), self.replay is not None
        while progress.step < end and not self.training.is_stopping():
            count = self.count_device_steps(end)
            if count:
                self.run_on_device(batches, count)
            else:
                self.run_on_host(batches)
            if progress.step < end:
                self.training.exchange_requests()
        if self.is_automatic and was_captured and progress.step > first:
            self.adapt_length((time.monotonic() - started_at) / (progress.step - first))

    def adapt_length(self, step_seconds: float) -> None:
        """Set the length of the next sinks so that one takes about TARGET_SECONDS."""
        self.length = max(1, min(self.longest, round(TARGET_SECONDS / max(step_seconds, 1e-9))))

    def count_device_steps(self, end: int) -> int:
        """Return how many of the coming steps run on the device alone; 0: the host drives the next one."""
        if self.obstacle is not None or not self.has_optimizer_state:
            return 0
        return self.step.optimizer_support.count_device_steps(end - self.progress.step)

    def run_on_host(self, batches: Iterator[Batch]) -> None:
        """Take one step that the host drives."""
        scale = self.step.scale
        skipped_before = scale.skipped
        self.training.run_step(self.feed.take_batch(batches))
        self.has_optimizer_state = scale.skipped == skipped_before or self.has_optimizer_state

    def run_on_device(self, batches: Iterator[Batch], count: int) -> None:
        """Take `count` steps on the device, or fewer if the run is stopped or a step cannot be captured."""
        progress, done = self.progress, 0
        first_batch = self.feed.take_batch(batches)
        step = self.device_step = self.device_step or DeviceStep(self.step, first_batch, self.longest)
        step.load_schedule(count)
        batch: Batch | None = first_batch
        try:
            while batch is not None and self.run_device_step(step, batch):
                self.step.timer.end_step()
                step.count_step()
                done += 1
                self.feed.mark_step()
                is_last = done == count
                if progress.step < progress.steps and not (is_last and progress.is_epoch_end):
                    self.feed.prepare_next(batches)  # a callback may still change the order of the next epoch
                batch = None if is_last or self.training.is_stopping() else self.feed.take_batch(batches)
        finally:  # also after an image that cannot be read: the steps before it are done
            step.finish(done)
            # A checkpoint stores the rate of the last step.
            self.step.set_rates(progress.step - 1, round_rates=self.obstacle is None)
        if batch is not None:  # the step with this batch could not be captured: the host drives it
            self.training.run_step(batch)

    def run_device_step(self, step: DeviceStep, batch: Batch) -> bool:
        """Take one step on the device and return True; return False if no step can be captured.

        The first steps, and those whose gradients callbacks observe, run uncaptured on a side stream.
        """
        number, timer = self.progress.step + 1, self.step.timer
        self.step.pulse.reach_point("a sink", number)
        step.load_batch(batch)
        if self.step.is_observed(number):
            step.is_observed = True
            try:
                self.feed.run_on_side_stream(step)
            finally:
                step.is_observed = False
            return True
        if self.warmed_up < WARM_UP_STEPS:
            before = read_host_state(self.step)
            self.feed.run_on_side_stream(step)
            self.warmed_up += 1
            if self.warmed_up == WARM_UP_STEPS:  # in the first one, modules may still initialise themselves
                self.refuse_host_changes(before)
            return True
        if self.obstacle is not None:
            return False
        if self.replay is None:
            try:
                step.is_capturing = True
                with timer.pause():
                    self.replay = self.capture(step)
            except RuntimeError as error:
                self.step.optimizer.zero_grad(set_to_none=True)
                self.fall_back(f"a step of it cannot be captured ({summarise_error(find_first_error(error))})")
                return False
            finally:
                step.is_capturing = False
        timer.begin_forward()
        self.replay()
        timer.end_replay()
        return True

    def refuse_host_changes(self, before: dict[str, Any]) -> None:
        """Fall back to the host if the last step has changed a value in Python, because a replay runs no Python."""
        after = read_host_state(self.step)
        changed = [name for name in after if name not in before or before[name] != after[name]]
        if changed:
            self.fall_back(f"each step changes {changed[0]} on the host, which a replay would not")

    def fall_back(self, reason: str) -> None:
        """Let the host drive all further steps, and print the reason, which becomes the obstacle."""
        self.obstacle = reason
        self.training.print_note(f"--sink {self.recipe.sink}: the host drives each step, because {reason}.")


def capture_graph(device: Device, work: Work) -> Work:
    """Capture the kernels that a function launches as a graph; return a function that replays it."""
    make_graph: Any = device.get_graph_class()
    vendor = getattr(torch, device.NAME)
    # In the default mode it is an error if loader threads pin memory during the capture.
    options = {"capture_error_mode": "thread_local"} if device.NAME == "cuda" else {}
    graph, stream_before = make_graph(), vendor.current_stream()
    gc.collect()  # collecting an older graph while another is captured is an error (pytorch/pytorch#161037)
    try:
        with disable_garbage_collector(), vendor.graph(graph, **options):
            work()
    except BaseException:
        vendor.set_stream(stream_before)
        renew_generator(vendor)
        raise
    finally:
        vendor.set_stream(stream_before)  # after an error torch leaves its own stream in place
    replay: Work = graph.replay
    return replay


def renew_generator(vendor: Any) -> None:
    """Give the device's generator a copy of its state; a failed capture leaves the old state tied to its graph."""
    generators = getattr(vendor, "default_generators", ())
    if not generators or not hasattr(generators[0], "graphsafe_set_state"):
        return
    generator = generators[vendor.current_device()]
    fresh = torch.Generator(generator.device)
    fresh.set_state(generator.get_state())
    generator.graphsafe_set_state(fresh)


class BatchFeed:
    """Gets the batches of the steps; if the device has streams, it prepares the next one on a side stream meanwhile."""

    def __init__(self, device_type: str) -> None:
        self.vendor: Any = getattr(torch, device_type) if device_type != "cpu" else None
        self.side_stream: Any = self.vendor.Stream() if self.vendor else None
        self.batch: Batch | None = None  # prepared for the coming step
        self.batch_ready: Any = None  # event that occurs when the side stream has made `batch`
        # Event that occurs when the current stream has made the data that all batches of the epoch use.
        self.epoch_ready: Any = None
        self.step_ends: deque[Any] = deque()  # events that occur at the ends of the steps in the device's queue

    def take_batch(self, batches: Iterator[Batch]) -> Batch:
        """Return the batch of the coming step, ready for the stream that steps run on."""
        batch, self.batch = self.batch, None
        if batch is None:
            batch = next(batches)
            self.epoch_ready = self.record_event()
            return batch
        stream = self.vendor.current_stream()
        stream.wait_event(self.batch_ready)
        for tensor in (batch.images, batch.labels):
            tensor.record_stream(stream)  # its memory is not reused before the stream has read it
        return batch

    def mark_step(self) -> None:
        """Record that a step was queued on the device."""
        if self.vendor:
            self.step_ends.append(self.record_event())

    def record_event(self) -> Any:
        """Return an event after all work in the current stream; None without streams."""
        if not self.vendor:
            return None
        event = self.vendor.Event()
        event.record()
        return event

    def prepare_next(self, batches: Iterator[Batch]) -> None:
        """Begin to make the next batch; wait first if the host is MAX_AHEAD steps ahead of the device."""
        if not self.vendor:
            return
        if len(self.step_ends) >= MAX_AHEAD:
            self.step_ends.popleft().synchronize()
        if self.epoch_ready is not None:
            self.side_stream.wait_event(self.epoch_ready)
            self.epoch_ready = None
        with self.vendor.stream(self.side_stream):
            self.batch, self.batch_ready = next(batches), self.record_event()

    def run_on_side_stream(self, work: Work) -> None:
        """Run the function on the side stream, or directly without streams."""
        if self.vendor:
            run_on_stream(self.vendor, self.side_stream, work)
        else:
            work()


def run_on_stream(vendor: Any, side_stream: Any, work: Work) -> None:
    """Run a function on a side stream, after the work of the current stream, which then waits for it."""
    current = vendor.current_stream()
    side_stream.wait_stream(current)
    with vendor.stream(side_stream):
        work()
    current.wait_stream(side_stream)


def find_first_error(error: BaseException) -> BaseException:
    """Return the error that was raised first; the end of a failed capture raises a second, less specific one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def build_sink(training: Training) -> tuple[Sink | None, str | None]:
    """Return the sink of a run, and the reason if no step can be captured.

    The sink is None if the loop takes the steps one by one. The reason is None if the recipe has sinks off.
    """
    length = training.recipe.sink
    if not length:
        return None, None
    if training.needs_every_step:
        return None, "a callback observes every step"
    obstacle = find_obstacle(training.train_step, training.device, training.callbacks)
    if length == "auto":
        obstacle = obstacle or find_step_callback(training.callbacks)
        return (Sink(training, None, None), None) if obstacle is None else (None, obstacle)
    return Sink(training, length, obstacle), obstacle


def describe_sink(obstacle: str | None, requested: int | str, device: Device) -> str | None:
    """Return a line for the user with the reason why the host drives each step; None if there is none.

    `requested` is the recipe's `sink`. Also return None with `--sink auto` on a device that captures no graphs.
    """
    if obstacle is None or (requested == "auto" and device.get_graph_class() is None):
        return None
    return f"--sink {requested}: the host drives each step, because {obstacle}."


def find_step_callback(callbacks: Sequence[Callback]) -> str | None:
    """Return the reason why `--sink auto` has no sinks, if a callback asks to be called after each step; else None."""
    for callback in callbacks:
        overrides_step = type(callback).step is not Callback.step
        if overrides_step and callback.every_step:
            return f"{type(callback).__name__}.step is called after each step (every_step = False allows sinks)"
    return None


def find_obstacle(step: TrainingStep, device: Device, callbacks: Sequence[Callback]) -> str | None:
    """Return the reason why no step of this run can be captured, or None."""
    if device.get_graph_class() is None:
        return f"{device.NAME} captures no graphs"
    if step.parallel.capture_obstacle:
        return step.parallel.capture_obstacle
    for callback in callbacks:
        if type(callback).forward is not Callback.forward:
            return f"{type(callback).__name__} observes every forward pass"
    network = step.computation.network  # the tensor `drop_path_progress` can be set on the device
    if callable(getattr(network, "set_progress", None)) and not hasattr(network, "drop_path_progress"):
        return "the network's `set_progress` is called in every step"
    return step.optimizer_support.find_capture_obstacle(skips_steps=step.scale.skips_overflows)


def read_host_state(step: TrainingStep) -> dict[str, Any]:
    """Return what a step could change in Python: attributes of the network's modules and of the loss, random states.

    Plain values are read, and the sizes of lists, dicts, sets and deques; other attributes are not.
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
        del states[TORCH_CPU]  # on the CPU it is the device's own random state
    return attributes | states
