"""Rows of operators from the events of a trace.

    operators = list_operators(Trace.read(…))

Calls with the same `Signature` (operator, phase, module, shapes, dtypes, layout, line) are one row. Importing this
module does not import torch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from viaduct.profiling.events import ON_DEVICE, OPERATOR, PYTHON, RUNTIMES, Event
from viaduct.profiling.flop_formulas import NOTHING_KNOWN, Call, Work, count_work
from viaduct.profiling.record import Operator, Phase
from viaduct.profiling.trace_context import Context, Trace

# Names of types in a trace -> torch's names.
TRACE_DTYPES = {
    "float": "float32", "double": "float64", "long int": "int64", "long": "int64", "int": "int32",
    "short": "int16", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::BFloat16": "bfloat16", "c10::Half": "float16", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
# Functions of the CUDA runtime in which the host waits for the device.
WAITING_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
HOST_COPY = re.compile(r"<built-in method (cpu|numpy|tolist) of \w+ object")
# Operators that read values of a tensor, for which the host waits.
VALUE_READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal")


class Signature(NamedTuple):
    """Properties by which calls are grouped into rows."""

    name: str
    phase: Phase
    module: str
    shapes: str
    dtypes: str
    layout: str
    location: str


def list_operators(trace: Trace, rank: int = 0) -> list[Operator]:
    """Return a row for each operator and signature, the longest first."""
    maker = RowMaker(trace, rank)
    groups: dict[Signature, list[Event]] = defaultdict(list)
    waits_outside_operators = [event for event in maker.waits if event.category != OPERATOR]
    for event in [*trace.operators, *waits_outside_operators]:
        groups[make_signature(trace, event)].append(event)
    rows = [maker.make_row(signature, events) for signature, events in groups.items()]
    return sorted(rows, key=lambda row: -(row.device_us or 0.0) - row.self_us)


class RowMaker:
    """Makes rows of operators, with times of a typical recorded step and counts as means over the steps."""

    def __init__(self, trace: Trace, rank: int) -> None:
        self.trace = trace
        self.rank = rank
        self.works = find_works(trace.operators)
        self.device_times: dict[int, float] = defaultdict(float)  # of the kernels of each operator, by id(operator)
        for kernel, operator in find_kernels(trace):
            if operator is not None:
                self.device_times[id(operator)] += kernel.duration
        self.waits = find_waits(trace)
        self.waiting_ids = {id(event) for event in self.waits}

    def make_row(self, signature: Signature, events: Sequence[Event]) -> Operator:
        """Return the row of calls with one signature; `device_us` is None if the trace has no kernels."""
        steps, find_typical_time_per_step = len(self.trace.step_spans), self.trace.find_typical_time_per_step
        works = [self.works.get(id(event), NOTHING_KNOWN) for event in events]
        on_device = [(event.start, self.device_times.get(id(event), 0.0)) for event in events]
        return Operator(
            **signature._asdict(),
            calls=len(events) / steps,
            total_us=find_typical_time_per_step((event.start, event.duration) for event in events),
            self_us=find_typical_time_per_step((event.start, self.trace.get_self_time(event)) for event in events),
            device_us=find_typical_time_per_step(on_device) if self.device_times else None,
            flops=sum_per_step([work.flops for work in works], steps),
            bytes=sum_per_step([work.bytes for work in works], steps),
            synchronises=any(id(event) in self.waiting_ids for event in events),
            rank=self.rank,
        )


def make_signature(trace: Trace, event: Event) -> Signature:
    context = trace.contexts.get(id(event))
    if context is None:  # a call of the device's runtime outside operators
        python = event.find_enclosing(PYTHON)
        context = Context(location=trace.locations.get(id(python), "") if python is not None else "")
    call = read_call(event)
    positions = [number for number in range(len(call.shapes)) if call.shape(number) is not None]  # of tensors
    shapes = ", ".join(str(call.shapes[number]) for number in positions) or describe_lists(call)
    dtypes = ", ".join(call.dtypes[number] for number in positions)
    layout = describe_layout(event)
    return Signature(event.name, context.phase, context.module, shapes, dtypes, layout, context.location)


def describe_lists(call: Call) -> str:
    """Return "3 tensors with 1000 values" for the first argument that is a list of tensors; "" without one."""
    for shapes, dtype in zip(call.shapes, call.dtypes, strict=False):
        if dtype == "TensorList" and shapes:
            values = sum(prod(shape) for shape in shapes if isinstance(shape, list))
            return f"{len(shapes)} tensors with {values} values"
    return ""


def sum_per_step(figures: Sequence[float | None], steps: int) -> float | None:
    """Return the sum of figures divided by the steps; None unless all figures are known."""
    known_figures = [figure for figure in figures if figure is not None]
    return sum(known_figures) / steps if known_figures and len(known_figures) == len(figures) else None


def read_call(event: Event) -> Call:
    """Return the name and the arguments of an operator's call."""
    args = event.args
    types = [str(name) for name in args.get("Input type") or args.get("Input Types") or []]  # by release of torch
    shapes = list(args.get("Input Dims") or [])
    return Call(
        event.name, shapes, [TRACE_DTYPES.get(name, name) for name in types], list(args.get("Concrete Inputs") or [])
    )


def describe_layout(event: Event) -> str:
    """Return the memory layout of the first input with four dimensions; "" if unknown."""
    pairs = zip(event.args.get("Input Dims") or [], event.args.get("Input Strides") or [], strict=False)
    for shape, strides in pairs:
        if isinstance(shape, list) and len(shape) == 4 and all(isinstance(size, int) for size in shape):
            return name_layout(shape, strides) if isinstance(strides, list) and len(strides) == 4 else ""
    return ""


def name_layout(shape: list[int], strides: list[int]) -> str:
    """Return "contiguous", "channels_last" or "other"; "" for a tensor that is both, such as 1x1 images."""
    _, channels, height, width = shape
    strides_of_layouts = {
        "contiguous": [channels * height * width, height * width, width, 1],
        "channels_last": [channels * height * width, 1, width * channels, channels],
    }
    layouts = [
        name
        for name, expected in strides_of_layouts.items()
        if all(size == 1 or stride == right for size, stride, right in zip(shape, strides, expected, strict=True))
    ]
    return "" if len(layouts) == 2 else (layouts[0] if layouts else "other")


def find_works(operators: Sequence[Event]) -> dict[int, Work]:
    """Return the work (FLOPs and bytes) of each operator by id.

    Operators of one family may call each other, such as aten::conv2d, aten::convolution and aten::mkldnn_convolution.
    Then only the innermost has the work.
    """
    works = {id(event): count_work(read_call(event)) for event in operators}
    for event in operators:
        family = works[id(event)].family
        outer = event.find_enclosing(OPERATOR)
        while family and outer is not None:
            if works.get(id(outer), NOTHING_KNOWN).family == family:
                works[id(outer)] = NOTHING_KNOWN
            outer = outer.find_enclosing(OPERATOR)
    return works


def find_waits(trace: Trace) -> list[Event]:
    """Return the events in which the host waits for the device, or would wait on an accelerator.

    If the trace has calls of the runtime (CUDA): the operators in which the runtime waited, and waiting calls outside
    operators. Otherwise: the operators that read a value, except values of the loader and counters of the optimizer,
    which are on the host.
    """
    calls = [event for event in trace.events if event.category in RUNTIMES]
    if not calls:
        reads = [event for event in trace.operators if event.name in VALUE_READS or is_host_copy(event)]
        return [event for event in reads if not trace.contexts[id(event)].reads_host_values]
    waits = [event for event in calls if event.name in WAITING_CALLS and trace.is_in_step(event.start)]
    return list(dict.fromkeys(event.find_enclosing(OPERATOR) or event for event in waits))


def is_host_copy(event: Event) -> bool:
    """Return True for an operator inside `.cpu()`, `.numpy()` or `.tolist()`, which wait on an accelerator only."""
    call = event.find_enclosing(PYTHON)
    return call is not None and HOST_COPY.match(call.name) is not None


def find_kernels(trace: Trace) -> list[tuple[Event, Event | None]]:
    """Return the kernels that recorded steps launched, each with the operator that launched it, if known."""
    by_id = {event.args.get("External id"): event for event in trace.events if event.category == OPERATOR}
    calls = {event.args.get("correlation"): event for event in trace.events if event.category in RUNTIMES}
    kernels = []
    for event in trace.events:
        if event.category not in ON_DEVICE:
            continue
        launch = calls.get(event.args.get("correlation"))
        caller = launch.find_enclosing(OPERATOR) if launch is not None else None
        operator = caller or by_id.get(event.args.get("External id"))
        cause = launch or operator or event  # the earliest of these that is known
        if trace.is_in_step(cause.start):
            kernels.append((event, operator))
    return kernels
