"""A sink for a training step that the user wrote (`viaduct.sink`): captured once as a graph of kernels, then replayed.

    with viaduct.sink(step, steps=100) as run:
        for images, labels in loader:
            loss = run(images, labels)

Each call takes the step once. The first WARM_UP_CALLS calls run the user's function on a side stream, which a capture
requires. The next call captures the graph; it and all later calls copy their inputs into the graph's buffers and replay
it without running Python. The host waits for the device after every `steps` calls. If the step cannot be captured
(`find_obstacle`), each call runs the user's function.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from viaduct import devices
from viaduct.devices.base import Device, summarise_error
from viaduct.errors import BadValue
from viaduct.random_states import read_random_states
from viaduct.training.sink import Work, capture_graph, find_first_error, run_on_stream

LOGGER = logging.getLogger("viaduct")
WARM_UP_CALLS = 3  # calls before the capture, in which libraries and optimizers initialise


class StepSink:
    """The context manager that `viaduct.sink` returns; it returns itself, and each call takes the user's step once."""

    def __init__(self, step: Callable[..., Any], steps: int) -> None:
        if not callable(step):
            raise BadValue(f"viaduct.sink: the step is of type {type(step).__name__}; it must be a function.")
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise BadValue(f"viaduct.sink: steps is {steps!r}; it must be a whole number of 1 or more.")
        self.step, self.steps = step, steps
        self.is_open = False  # True within the `with` block
        self.was_entered = False  # True once the block was entered
        self.is_running = False  # within a call
        self.calls = 0
        # Shape, dtype and device of each input of the first call.
        self.expected: list[tuple[torch.Size, torch.dtype, torch.device]] | None = None
        self.device: Device | None = None  # None before the first call, and if the inputs are on several devices
        self.obstacle: str | None = None  # why the step is not captured
        self.buffers: list[Tensor] = []  # inputs that the graph reads
        self.outputs: Any = None  # outputs that the graph writes
        self.side_stream: Any = None
        self.replay: Work | None = None  # replays the graph; None before the capture

    def __enter__(self) -> StepSink:
        if self.was_entered:
            raise BadValue("viaduct.sink: this sink was entered before.", "Make another one with viaduct.sink(step).")
        self.is_open = self.was_entered = True
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        """Wait for the device and free the graph; after an error, without waiting."""
        self.is_open = False
        if kind is None and self.device is not None:
            self.device.synchronize()
        self.replay = self.outputs = self.side_stream = None
        self.buffers = []

    def __call__(self, *inputs: Tensor) -> Any:
        """Take the step once and return its outputs, detached; the next call may overwrite them."""
        if not self.is_open:
            raise BadValue(
                "viaduct.sink: called outside of its `with` block.", "with viaduct.sink(step) as run: run(images)"
            )
        if self.is_running:
            raise BadValue("viaduct.sink: called by the step that it runs.")
        self.is_running = True
        try:
            self.check_inputs(inputs)
            outputs = self.run_captured(inputs) if self.obstacle is None else detach_outputs(self.step(*inputs))
        finally:
            self.is_running = False
        self.calls += 1
        if self.device is not None and self.calls % self.steps == 0:
            self.device.synchronize()
        return outputs

    def check_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Raise BadValue for inputs that are no tensors, require gradients, or are unlike those of the first call."""
        for number, value in enumerate(inputs, 1):
            if not isinstance(value, Tensor):
                raise BadValue(
                    f"viaduct.sink: input {number} is of type {type(value).__name__}; inputs must be tensors.",
                    "A replay would use its value at the capture; use values that do not change inside the step.",
                )
            if value.requires_grad:
                raise BadValue(f"viaduct.sink: input {number} requires a gradient, which would not leave the step.")
        kinds = [(value.shape, value.dtype, value.device) for value in inputs]
        if self.expected is None:
            self.prepare_device(inputs)
            self.expected = kinds
        elif len(kinds) != len(self.expected):
            raise BadValue(f"viaduct.sink: {len(kinds)} inputs, and the first call had {len(self.expected)}.")
        for number, (now, first) in enumerate(zip(kinds, self.expected, strict=True), 1):
            if now != first:
                raise BadValue(
                    f"viaduct.sink: input {number} is {describe_input(now)}, "
                    f"and was {describe_input(first)} in the first call.",
                    "A graph is captured for one shape, dtype and device; leave out a last, smaller batch.",
                )

    def prepare_device(self, inputs: tuple[Tensor, ...]) -> None:
        """Find the device of the step; allocate a stream and input buffers if the step can be captured there."""
        kinds = sorted({value.device.type for value in inputs})
        if len(kinds) == 1 and kinds[0] in devices.names():
            self.device = devices.get(kinds[0])
        self.obstacle = find_obstacle(kinds, self.device)
        if self.obstacle is not None:
            LOGGER.warning("viaduct.sink: each call runs the step itself, because %s", self.obstacle)
            return
        current = self.vendor.current_device()
        if others := [value.device for value in inputs if value.device.index not in (None, current)]:
            message = f"viaduct.sink: an input is on {others[0]}, and the current card is {kinds[0]}:{current}."
            raise BadValue(message, f"Call torch.{kinds[0]}.set_device({others[0].index}) before.")
        self.side_stream = self.vendor.Stream()
        self.buffers = [torch.empty_like(value, requires_grad=False) for value in inputs]

    @torch.no_grad()
    def load(self, inputs: tuple[Tensor, ...]) -> None:
        """Copy inputs into the graph's buffers."""
        for buffer, value in zip(self.buffers, inputs, strict=True):
            buffer.copy_(value)

    def run_captured(self, inputs: tuple[Tensor, ...]) -> Any:
        """Take the step uncaptured in the first calls; then capture it once, and replay it."""
        self.load(inputs)
        if self.calls < WARM_UP_CALLS:
            states = read_random_states()
            run_on_stream(self.vendor, self.side_stream, self.run_step)
            if self.calls + 1 == WARM_UP_CALLS:
                refuse_random_numbers(states)
            return self.outputs
        if self.replay is None:
            self.replay = self.capture()
        self.replay()
        return self.outputs

    @property
    def vendor(self) -> Any:
        """torch's module for the device, such as torch.cuda."""
        assert self.device is not None
        return getattr(torch, self.device.NAME)

    def run_step(self) -> None:
        self.outputs = detach_outputs(self.step(*self.buffers))

    def capture(self) -> Work:
        """Record the step as a graph, without computing it."""
        assert self.device is not None
        if torch.is_autocast_enabled(self.device.NAME):
            message = "viaduct.sink: autocast is on around the call, and its copies of weights outlive a step."
            raise BadValue(message, "Put `with torch.autocast(...)` into the step.")
        try:
            return capture_graph(self.device, self.run_step)
        except Exception as error:
            cause = find_first_error(error)
            if isinstance(cause, BadValue) or not isinstance(cause, RuntimeError):
                raise cause from None  # an error of the step itself
            raise BadValue(
                f"viaduct.sink: the step cannot be captured ({summarise_error(cause)}).",
                "A captured step must not ask the device for a number (.item(), a tensor in an `if`, GradScaler.step), "
                "nor copy from the host; optimizers need capturable=True. docs/api.md has the list.",
            ) from error


def find_obstacle(kinds: list[str], device: Device | None) -> str | None:
    """Return the reason why a step with inputs on these devices cannot be captured, or None."""
    if not kinds:
        return "it has no inputs, which would say on which device it runs"
    if device is None:
        return f"its inputs are on {' and '.join(kinds)}"
    if device.get_graph_class() is None:
        return f"{device.NAME} captures no graphs"
    has_group = torch.distributed.is_available() and torch.distributed.is_initialized()
    return "several ranks take part" if has_group and torch.distributed.get_world_size() > 1 else None


def refuse_random_numbers(before: dict[str, object]) -> None:
    """Raise BadValue if the step drew random numbers on the host, because a replay would reuse those of the capture."""
    changed = [name for name, state in read_random_states().items() if state != before[name]]
    if changed:
        message = f"viaduct.sink: each call of the step uses {changed[0]}, and a replay would draw none."
        raise BadValue(message, "Draw with torch on the device.")


def detach_outputs(outputs: Any) -> Any:
    """Return a step's outputs detached from the autograd graph; lists become tuples."""
    if outputs is None:
        return None
    if isinstance(outputs, Tensor):
        return outputs.detach()
    if isinstance(outputs, tuple | list):
        return tuple(detach_outputs(part) for part in outputs)
    expected = "it must return tensors, tuples of them, or None"
    message = f"viaduct.sink: the step returned {type(outputs).__name__}; {expected}."
    raise BadValue(message, "A replay computes tensors only: return the loss, not loss.item().")


def describe_input(value: tuple[torch.Size, torch.dtype, torch.device]) -> str:
    shape, dtype, device = value
    return f"{dtype} {list(shape)} on {device}"
