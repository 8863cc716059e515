"""Rows of operators and kernels from the events of a trace.

    trace = Trace.read(raw_events, windows=[(start, end), …], main_thread=(pid, tid))
    operators, kernels = list_operators(trace), list_kernels(trace)

An operator belongs to the phase, the module and the script's line that its thread is in: `Optimizer.step#…` is the
update, `enumerate(DataLoader)#…` data, what the autograd engine evaluates backward. Backward operators take module and
line from the forward operator with their sequence number. Importing this module does not import torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from viaduct.profiling import kinds
from viaduct.profiling.events import (
    ANNOTATION,
    ON_DEVICE,
    OPERATOR,
    PYTHON,
    RUNTIMES,
    Event,
    Span,
    nest_events,
    sum_inside,
)
from viaduct.profiling.flop_formulas import NOTHING_KNOWN, SIZES, Call, Work, count_work
from viaduct.profiling.record import Kernel, Operator, Phase

MODULE = "viaduct.module:"  # annotations around the forward pass of a module
ENGINE = "autograd::engine::evaluate_function"
NO_TENSORS = ("", "Scalar", "ScalarList", "GenericList", "Dict", "None", "TensorList")
DTYPES = {
    **{"float": "float32", "double": "float64", "long int": "int64", "long": "int64", "int": "int32"},
    **{"short": "int16", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool"},
    **{"c10::BFloat16": "bfloat16", "c10::Half": "float16", "c10::complex<float>": "complex64"},
    **{"c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2"},
}
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
VALUE_READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal")
HELPERS = {
    f"aten::{name}"
    for name in (
        *(
            "empty",
            "empty_like",
            "empty_strided",
            "new_empty",
            "resize_",
            "view",
            "reshape",
            "as_strided",
            "as_strided_",
            "t",
        ),
        *(
            "transpose",
            "permute",
            "expand",
            "expand_as",
            "select",
            "slice",
            "squeeze",
            "unsqueeze",
            "detach",
            "detach_",
        ),
        *(
            "alias",
            "_unsafe_view",
            "_reshape_alias",
            "narrow",
            "unbind",
            "split",
            "chunk",
            "view_as",
            "numpy_T",
            "flatten",
        ),
        *(
            "result_type",
            "is_same_size",
            "set_",
            "resolve_conj",
            "resolve_neg",
            "lift_fresh",
            "unfold",
            "contiguous",
            "to",
        ),
    )
} | {"detach", "detach_"}
"""Operators that allocate or describe memory: they compute nothing and are no kernels."""
LOADER_FILES = "torch/utils/data"


@dataclass
class Trace:
    """Events of the recorded steps, and what surrounds each of them."""

    events: list[Event]
    windows: list[Span]
    main_thread: Any
    device: str = "cpu"
    lines: dict[int, str] = field(default_factory=dict)  # id of a Python function -> script's line (locations.py)

    @classmethod
    def read(cls, raw_events: Iterable[dict[str, Any]], windows: list[Span], main_thread: Any, device: str) -> Trace:
        """Return the nested events of a trace."""
        return cls(nest_events(raw_events), windows, main_thread, device)

    @cached_property
    def operators(self) -> list[Event]:
        """Operators that began within a recorded step, in order of time."""
        first, last = self.windows[0][0], self.windows[-1][1]
        return [event for event in self.events if event.category == OPERATOR and first <= event.start < last]

    @cached_property
    def inside_us(self) -> dict[int, float]:
        """Time of other operators inside an operator, by id."""
        return sum_inside(self.operators)

    @cached_property
    def contexts(self) -> dict[int, Context]:
        """Surroundings of each operator, by id."""
        return find_contexts(self)

    @cached_property
    def works(self) -> dict[int, Work]:
        """Work of each operator, by id; of nested ones that do the same work only the innermost has it."""
        return find_works(self.operators)

    @cached_property
    def kernels(self) -> list[tuple[Event, Event | None]]:
        """Kernels and copies on the device that a recorded step launched, with the operator that did."""
        return find_kernels(self)


@dataclass(frozen=True)
class Context:
    """What an operator belongs to."""

    phase: Phase = "other"
    module: str = ""
    location: str = ""
    in_loader: bool = False


class Signature(NamedTuple):
    """What calls of one row have in common."""

    name: str
    phase: Phase
    module: str
    shapes: str
    dtypes: str
    layout: str
    location: str


@dataclass
class Mark:
    """Surroundings of an event, as far as the events around it say."""

    phase: Phase | None = None
    module: str = ""
    python: Event | None = None
    sequence: int | None = None  # of the backward function around it
    in_loader: bool = False


def find_contexts(trace: Trace) -> dict[int, Context]:
    """Return the surroundings of each operator."""
    marks = mark_events(trace)
    sources = find_sources(trace.operators, marks)
    trained = {id(source) for source in sources.values()}
    contexts: dict[int, Context] = {}
    running: Phase = "other"
    for event in trace.operators:
        mark = marks[id(event)]
        marked = mark.phase or ("forward" if mark.module or id(event) in trained else None)
        if marked and (event.thread == trace.main_thread or marked == "backward"):
            running = marked
        outer = contexts.get(id(event.find_around(OPERATOR)))
        phase = marked or (outer.phase if outer is not None else follow_phase(running))
        source = sources.get(mark.sequence) if phase == "backward" else None
        origin = marks[id(source)] if source is not None else mark
        location = trace.lines.get(id(origin.python), "") or trace.lines.get(id(mark.python), "")
        contexts[id(event)] = Context(phase, mark.module or origin.module, location, mark.in_loader)
    return contexts


def follow_phase(running: Phase) -> Phase:
    """Return the phase of an operator without marks of its own: that of a loss, of gradient clipping, of logging."""
    followers: dict[Phase, Phase] = {"forward": "forward", "backward": "update"}
    return followers.get(running, "other")


def mark_events(trace: Trace) -> dict[int, Mark]:
    """Return for each event of the host what the events around it say."""
    marks: dict[int, Mark] = {}
    for event in trace.events:
        if event.category in ON_DEVICE:
            continue
        outer = marks[id(event.parent)] if event.parent is not None else Mark()
        mark = Mark(outer.phase, outer.module, outer.python, outer.sequence, outer.in_loader)
        if event.category == ANNOTATION:
            mark_annotation(mark, event)
        elif event.category == PYTHON:
            mark.python = event
            mark.in_loader = mark.in_loader or event.name.startswith(LOADER_FILES)
            if event.name.startswith("torch/_tensor.py(") and event.name.endswith(": backward"):
                mark.phase = "backward"
        elif event.category == OPERATOR and event.name.startswith(ENGINE):
            mark.phase, mark.sequence, mark.module = "backward", event.args.get("Sequence number"), ""
        marks[id(event)] = mark
    return marks


def mark_annotation(mark: Mark, event: Event) -> None:
    """Set what an annotation says of the events inside of it."""
    if event.name.startswith(MODULE):
        mark.module = event.name.removeprefix(MODULE)
    elif event.name.startswith("Optimizer."):
        mark.phase = "update"
    elif event.name.startswith("enumerate(DataLoader)"):
        mark.phase, mark.in_loader = "data", True


def find_sources(operators: Iterable[Event], marks: dict[int, Mark]) -> dict[int | None, Event]:
    """Return the forward operator of each sequence number that a backward function has.

    An operator that needs no gradient carries the number that the next function will get, so the last operator with a
    number before its backward function is the one that took it.
    """
    latest: dict[int, Event] = {}
    sources: dict[int | None, Event] = {}
    for event in operators:
        mark, number = marks[id(event)], event.args.get("Sequence number")
        if mark.sequence in latest and mark.sequence not in sources:
            sources[mark.sequence] = latest[mark.sequence]
        elif isinstance(number, int) and mark.phase is None:
            latest[number] = event
    return sources


def list_operators(trace: Trace, rank: int = 0) -> list[Operator]:
    """Return a row for each operator and signature, the longest first."""
    launched = sum_launched(trace)
    waiting = find_waits(trace)
    groups: dict[Signature, list[Event]] = defaultdict(list)
    for event in [*trace.operators, *(event for event in waiting if event.category != OPERATOR)]:
        groups[describe_signature(trace, event)].append(event)
    waits = {id(event) for event in waiting}
    rows = [
        make_row(trace, signature, events, launched, any(id(event) in waits for event in events), rank)
        for signature, events in groups.items()
    ]
    return sorted(rows, key=lambda row: -(row.device_us or 0.0) - row.self_us)


def describe_signature(trace: Trace, event: Event) -> Signature:
    """Return what makes a row of its own."""
    context = trace.contexts.get(id(event)) or find_runtime_context(trace, event)
    call = read_call(event)
    tensors = [number for number in range(len(call.shapes)) if call.shape(number) is not None]
    shapes = ", ".join(str(call.shapes[number]) for number in tensors) or describe_lists(call)
    dtypes = ", ".join(call.dtypes[number] for number in tensors)
    layout = describe_layout(event)
    return Signature(event.name, context.phase, context.module, shapes, dtypes, layout, context.location)


def describe_lists(call: Call) -> str:
    """Return the number of tensors in a list of them, and of their values, as a shape; "" without a list."""
    for shapes, dtype in zip(call.shapes, call.dtypes, strict=False):
        if dtype == "TensorList" and shapes:
            values = sum(prod(shape) for shape in shapes if isinstance(shape, list))
            return f"{len(shapes)} tensors with {values} values"
    return ""


def find_runtime_context(trace: Trace, event: Event) -> Context:
    """Return the surroundings of a call of the device's runtime that stands outside of operators."""
    python = event.find_around(PYTHON)
    return Context(location=trace.lines.get(id(python), "") if python is not None else "")


def make_row(
    trace: Trace,
    signature: Signature,
    events: Sequence[Event],
    launched: dict[int, float],
    waits: bool,
    rank: int,
) -> Operator:
    """Return one row with means per recorded step."""
    steps = len(trace.windows)
    works = [trace.works.get(id(event), NOTHING_KNOWN) for event in events]
    total = sum(event.duration for event in events)
    inside = sum(min(event.duration, trace.inside_us.get(id(event), 0.0)) for event in events)
    on_device = sum(launched.get(id(event), 0.0) for event in events) / steps if trace.device != "cpu" else None
    return Operator(
        **signature._asdict(),
        calls=len(events) / steps,
        total_us=total / steps,
        self_us=(total - inside) / steps,
        device_us=on_device,
        flops=sum_known([work.flops for work in works], steps),
        bytes=sum_known([work.bytes for work in works], steps),
        synchronises=waits,
        rank=rank,
    )


def sum_known(figures: Sequence[float | None], steps: int) -> float | None:
    """Return the sum per step; None unless all of them are known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) / steps if known and len(known) == len(figures) else None


def read_call(event: Event) -> Call:
    """Return shapes, dtypes and plain values of an operator's arguments, as the trace has them."""
    args = event.args
    types = [str(name) for name in args.get("Input type") or args.get("Input Types") or []]
    shapes = list(args.get("Input Dims") or [])
    return Call(event.name, shapes, [DTYPES.get(name, name) for name in types], list(args.get("Concrete Inputs") or []))


def describe_layout(event: Event) -> str:
    """Return the memory layout of the first input with four dimensions; "" where strides say nothing."""
    pairs = zip(event.args.get("Input Dims") or [], event.args.get("Input Strides") or [], strict=False)
    for shape, strides in pairs:
        if isinstance(shape, list) and len(shape) == 4 and all(isinstance(side, int) for side in shape):
            return name_layout(shape, strides) if isinstance(strides, list) and len(strides) == 4 else ""
    return ""


def name_layout(shape: list[int], strides: list[int]) -> str:
    """Return "contiguous", "channels_last" or "other"; "" for a tensor that is both, such as one of 1x1 images."""
    _, channels, height, width = shape
    orders = {
        "contiguous": [channels * height * width, height * width, width, 1],
        "channels_last": [channels * height * width, 1, width * channels, channels],
    }
    fitting = [
        name
        for name, expected in orders.items()
        if all(side == 1 or stride == wanted for side, stride, wanted in zip(shape, strides, expected, strict=True))
    ]
    return "" if len(fitting) == 2 else (fitting[0] if fitting else "other")


def find_works(operators: Sequence[Event]) -> dict[int, Work]:
    """Count the work of each operator; an operator around another of the same family leaves it to that one."""
    works = {id(event): count_work(read_call(event)) for event in operators}
    for event in operators:
        family = works[id(event)].family
        outer = event.find_around(OPERATOR)
        while family and outer is not None:
            if works.get(id(outer), NOTHING_KNOWN).family == family:
                works[id(outer)] = NOTHING_KNOWN
            outer = outer.find_around(OPERATOR)
    return works


def find_waits(trace: Trace) -> list[Event]:
    """Return where the host waits for the device.

    On CUDA these are the operators (or the calls outside of operators) inside of which the runtime waited. On the CPU
    nothing waits: these are the operators that would wait on an accelerator, outside of the loader and the optimizer.
    """
    if trace.device == "cpu":
        contexts = trace.contexts
        reads = [event for event in trace.operators if event.name in VALUE_READS]
        return [event for event in reads if not is_on_host_anyway(contexts[id(event)])]
    first, last = trace.windows[0][0], trace.windows[-1][1]
    calls = [event for event in trace.events if event.category in RUNTIMES and event.name in WAITS]
    inside = [event for event in calls if first <= event.start < last]
    return list({id(found): found for found in (event.find_around(OPERATOR) or event for event in inside)}.values())


def is_on_host_anyway(context: Context) -> bool:
    """Return True for values that an accelerator's run keeps on the host: the loader's and the optimizer's counters."""
    return context.in_loader or context.phase in ("data", "update")


def find_kernels(trace: Trace) -> list[tuple[Event, Event | None]]:
    """Return kernels that recorded steps launched, each with its operator where that is known."""
    by_id = {event.args.get("External id"): event for event in trace.events if event.category == OPERATOR}
    calls = {event.args.get("correlation"): event for event in trace.events if event.category in RUNTIMES}
    first, last = trace.windows[0][0], trace.windows[-1][1]
    found = []
    for event in trace.events:
        if event.category not in ON_DEVICE:
            continue
        launch = calls.get(event.args.get("correlation"))
        around = launch.find_around(OPERATOR) if launch is not None else None
        operator = around or by_id.get(event.args.get("External id"))
        began = launch.start if launch is not None else operator.start if operator is not None else event.start
        if first <= began < last:
            found.append((event, operator))
    return found


def sum_launched(trace: Trace) -> dict[int, float]:
    """Return the device's time of the kernels that each operator launched itself, by id."""
    launched: dict[int, float] = defaultdict(float)
    for kernel, operator in trace.kernels:
        if operator is not None:
            launched[id(operator)] += kernel.duration
    return launched


def list_kernels(trace: Trace, rank: int = 0) -> list[Kernel]:
    """Return a row for each kernel name, dtype and operator, the longest first."""
    rows = list_leaf_operators(trace) if trace.device == "cpu" else list_launched(trace)
    groups: dict[KernelSignature, list[tuple[float, Work]]] = defaultdict(list)
    for signature, time, work in rows:
        groups[signature].append((time, work))
    steps = len(trace.windows)
    kernels = [
        Kernel(
            **signature._asdict(),
            calls=len(found) / steps,
            time_us=sum(time for time, _ in found) / steps,
            flops=sum_known([work.flops for _, work in found], steps),
            bytes=sum_known([work.bytes for _, work in found], steps),
            rank=rank,
        )
        for signature, found in groups.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.time_us)


class KernelSignature(NamedTuple):
    """What launches of one kernel row have in common."""

    name: str
    kind: str
    dtype: str
    operator: str


Row = tuple[KernelSignature, float, Work]


def list_leaf_operators(trace: Trace) -> list[Row]:
    """Return the CPU's kernels: operators that call no other but helpers, with the time that is their own."""
    callers = {id(event.find_around(OPERATOR)) for event in trace.operators if event.name not in HELPERS}
    found: list[Row] = []
    for event in trace.operators:
        is_leaf = id(event) not in callers and event.name not in HELPERS
        if is_leaf or trace.works[id(event)].family:
            outer = event.find_around(OPERATOR)
            caller = outer.name if outer is not None else ""
            signature = KernelSignature(event.name, find_kind(trace, event), find_dtype(event), caller)
            own_us = max(0.0, event.duration - trace.inside_us.get(id(event), 0.0))
            found.append((signature, own_us, trace.works[id(event)]))
    return found


def list_launched(trace: Trace) -> list[Row]:
    """Return kernels of the device; an operator's work is that of its kernel where it launched no other."""
    counts: dict[int, int] = defaultdict(int)
    for _, operator in trace.kernels:
        counts[id(operator)] += 1
    found: list[Row] = []
    for kernel, operator in trace.kernels:
        alone = operator is not None and counts[id(operator)] == 1
        work = trace.works.get(id(operator), NOTHING_KNOWN) if alone else NOTHING_KNOWN
        dtype = find_dtype(operator) if operator is not None else ""
        name = operator.name if operator is not None else ""
        signature = KernelSignature(kernel.name, find_kernel_kind(trace, kernel, operator), dtype, name)
        found.append((signature, kernel.duration, work))
    return found


def find_dtype(event: Event) -> str:
    """Return the dtype of the first floating-point input, else of the first tensor; "" where there is none."""
    dtypes = [dtype for dtype in read_call(event).dtypes if dtype in SIZES]
    return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0] if dtypes else "")


def find_kind(trace: Trace, event: Event) -> str:
    """Return the kind of an operator; whatever runs inside of an optimizer's step is the optimizer's."""
    context = trace.contexts.get(id(event))
    outer = event.find_around(ANNOTATION)
    inside_step = outer is not None and outer.name.startswith("Optimizer.")
    if context is not None and context.phase == "update" and inside_step:
        return kinds.OPTIMIZER
    return kinds.describe_operator(event.name)


def find_kernel_kind(trace: Trace, kernel: Event, operator: Event | None) -> str:
    """Return the kind of a kernel by its operator where that says something, else by its own name."""
    by_operator = find_kind(trace, operator) if operator is not None else kinds.OTHER
    by_name = kinds.describe_kernel(kernel.name)
    if by_operator == kinds.OPTIMIZER or by_name in (kinds.PRODUCT, kinds.OTHER, kinds.ELEMENTWISE):
        return by_name if by_operator in (kinds.OTHER, kinds.COMPILED) else by_operator
    return by_name
