"""Steps of a trace of torch.profiler or torch_npu's profiler.

    result = find_steps(raw_events, launches)
    result.steps, result.step_spans, result.phases_found_by

Steps and phases are found from events that torch's profiler records without further options: ProfilerStep#n if the
script calls `profiler.step`, enumerate(DataLoader)#…, Optimizer.step#…, evaluations of the autograd engine, and flows
from forward to backward operators. Their times are on the host. If kernels are known, the kernels that were launched
between two such events give the times on the device.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .events import ENGINE, LOADER, OPTIMIZER, OPTIMIZER_STEP, RawEvent, Span, join_spans, remove_spans, sum_spans
from .record import Collective, Step

STEP = re.compile(r"ProfilerStep#(\d+)")
# Operators that copy, create or collate tensors, as in loading a batch: they do not begin the forward pass.
COPIES = re.compile(
    r"aten::(to|_to_copy|copy_|empty\w*|pin_memory|_pin_memory|is_pinned|detach\w*|zero_|zeros\w*|set_|resize_|record_stream"
    r"|item|_local_scalar_dense|lift_fresh|randperm|random_|unbind|select|as_strided|stack|cat)\b|detach|npu::npu_format"
)


class Launch(NamedTuple):
    """A kernel with the time of its launch on the host."""

    host_us: float
    start_us: float
    end_us: float


class HostStep(NamedTuple):
    """Span of one step on the host."""

    number: int
    start: float
    end: float
    follows_previous: bool  # the previous step is in the trace too


@dataclass
class FoundSteps:
    """Steps found in a trace."""

    steps: list[Step] = field(default_factory=list)
    step_spans: list[Span] = field(default_factory=list)  # start and end of each step on the host
    main_thread: Any = None  # (process, thread) of the annotations ProfilerStep#n; None without annotations
    phases_found_by: list[str] = field(default_factory=list)  # sentences for Facts.phases_found_by
    notes: list[str] = field(default_factory=list)
    phases_measured: bool = True  # False: a step lacks its forward start or backward end


@dataclass
class HostMarks:
    """Events of the host from which steps and their phases are found, by kind and in order of time."""

    steps: list[RawEvent] = field(default_factory=list)
    loaders: list[Span] = field(default_factory=list)
    optimizers: list[Span] = field(default_factory=list)
    engine: list[Span] = field(default_factory=list)
    flows: list[float] = field(default_factory=list)  # starts of forward operators with a backward operator
    operators: list[tuple[float, float, str]] = field(default_factory=list)  # start, end, name


def collect_marks(events: Iterable[RawEvent]) -> HostMarks:
    """Return the events from which steps and their phases are found."""
    marks = HostMarks()
    for event in events:
        if "ts" not in event:
            continue
        name, category = str(event.get("name", "")), str(event.get("cat", ""))
        if event.get("ph") == "s" and category == "fwdbwd":
            marks.flows.append(event["ts"])
        if event.get("ph") != "X" or "dur" not in event or category.startswith("gpu_"):
            continue
        span = (event["ts"], event["ts"] + event["dur"])
        if STEP.fullmatch(name):
            marks.steps.append(event)
        elif name.startswith(LOADER):
            marks.loaders.append(span)
        elif name.startswith(OPTIMIZER_STEP):
            marks.optimizers.append(span)
        elif name.startswith(ENGINE):
            marks.engine.append(span)
        elif category == "cpu_op" and not name.startswith(OPTIMIZER):
            marks.operators.append((*span, name))
    for spans in (marks.loaders, marks.optimizers, marks.engine, marks.flows, marks.operators):
        spans.sort()
    marks.steps.sort(key=lambda event: float(event["ts"]))
    return marks


def find_steps(events: Iterable[RawEvent], launches: Sequence[Launch] = (), rank: int = 0) -> FoundSteps:
    """Return the steps of one rank, on the clock of the events."""
    marks = collect_marks(events)
    result = FoundSteps()
    host_steps = find_host_steps(marks, result)
    if marks.steps:
        result.main_thread = (marks.steps[0].get("pid"), marks.steps[0].get("tid"))
    ordered = sorted(launches)
    previous_end: float | None = None
    for host_step in host_steps:
        known_end = previous_end if host_step.follows_previous else None
        step = build_step(host_step, marks, ordered, known_end, rank, result)
        previous_end = step.end_us if step is not None else None
        if step is not None:
            result.steps.append(step)
            result.step_spans.append((host_step.start, host_step.end))
    result.phases_found_by += describe_time_points(result, marks, on_device=bool(ordered))
    return result


def find_host_steps(marks: HostMarks, result: FoundSteps) -> list[HostStep]:
    """Return the spans of ProfilerStep#n, else the spans between the ends of the optimizer's steps."""
    if marks.steps:
        result.phases_found_by.append("Steps are the annotations ProfilerStep#n of the profiler's schedule.")
        numbers = [int(str(event["name"]).partition("#")[2]) for event in marks.steps]
        return [
            HostStep(number, event["ts"], event["ts"] + event["dur"], n > 0 and numbers[n - 1] == number - 1)
            for n, (number, event) in enumerate(zip(numbers, marks.steps, strict=True))
        ]
    if len(marks.optimizers) > 1:
        result.phases_found_by.append("There is no ProfilerStep#n: a step ends with each Optimizer.step.")
        ends = [end for _, end in marks.optimizers]
        begin = min([start for start, *_ in marks.operators] + [marks.optimizers[0][0]])
        return [
            HostStep(n, start, end, n > 0) for n, (start, end) in enumerate(zip([begin, *ends], ends, strict=False))
        ]
    result.notes.append("The trace has neither ProfilerStep#n nor several Optimizer.step: its steps are not known.")
    return []


def build_step(
    host_step: HostStep,
    marks: HostMarks,
    launches: list[Launch],
    previous_end: float | None,
    rank: int,
    result: FoundSteps,
) -> Step | None:
    """Return one step; None for a span with neither a forward nor a backward pass. Notes are added to `result`.

    `previous_end` is None if the previous step is not in the trace. Without a forward start or a backward end, the
    phases are not measured.
    """
    optimizers = select_spans(marks.optimizers, host_step.start, host_step.end)
    end = optimizers[-1][1] if optimizers else host_step.end
    forward = find_forward_start(host_step, marks, end)
    backward = find_backward_end(host_step, marks, optimizers)
    if forward is None and backward is None:
        result.notes.append(
            f"Step {host_step.number} of the trace has neither a forward nor a backward pass: it is left out."
        )
        return None
    if forward is None or backward is None:
        result.phases_measured = False
        points = (host_step.start if previous_end is None else previous_end, end, end)
    else:
        points = find_device_times(launches, forward, backward, end)
    forward_start, backward_end, step_end = map(float, points)
    if previous_end is not None and forward_start < previous_end:
        result.notes.append(
            f"The forward pass of step {host_step.number} overlaps the previous step: its data tail counts as 0."
        )
        forward_start = previous_end
    wait = measure_loader_wait(marks, host_step, previous_end, forward)
    backward_end = max(backward_end, forward_start)
    return Step(rank, host_step.number, forward_start, backward_end, max(step_end, backward_end), previous_end, wait)


def select_spans(spans: list[Span], start: float, end: float) -> list[Span]:
    """Return the spans that begin between `start` and `end`."""
    return spans[bisect_left(spans, (start,)) : bisect_left(spans, (end,))]


def find_forward_start(host_step: HostStep, marks: HostMarks, end: float) -> float | None:
    """Return the start of the first operator with a backward operator, else of the first operator that is no copy.

    Only outermost operators after the arrival of the batch count. None if there is no such operator.
    """
    loaded = max([host_step.start, *(stop for _, stop in select_spans(marks.loaders, host_step.start, end))])
    low, high = (bisect_left(marks.operators, (time,)) for time in (loaded, end))
    outermost = find_outermost(marks.operators[low:high])
    index = bisect_left(marks.flows, loaded)
    if index < len(marks.flows) and marks.flows[index] < end:
        flow = marks.flows[index]
        return next((start for start, stop, _ in outermost if start <= flow <= stop), flow)
    return next((start for start, _, name in outermost if not COPIES.match(name)), None)


def find_outermost(operators: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return the operators that are not inside another one of the list."""
    outer: list[tuple[float, float, str]] = []
    for operator in sorted(operators, key=lambda row: (row[0], -row[1])):
        if not outer or operator[0] >= outer[-1][1]:
            outer.append(operator)
    return outer


def find_backward_end(host_step: HostStep, marks: HostMarks, optimizers: list[Span]) -> float | None:
    """Return the end of the last evaluation of the autograd engine, else the start of the optimizer's step; or None."""
    evaluated = select_spans(marks.engine, host_step.start, host_step.end)
    if evaluated:
        return max(stop for _, stop in evaluated)
    return optimizers[0][0] if optimizers else None


def find_device_times(
    launches: list[Launch], forward: float, backward: float, end: float
) -> tuple[float, float, float]:
    """Return forward start, backward end and step end on the device, by the kernels launched between these points.

    Without a kernel between forward start and backward end, the points themselves are returned.
    """
    times = [launch.host_us for launch in launches]
    low, middle, high = bisect_left(times, forward), bisect_right(times, backward), bisect_right(times, end)
    if low >= middle:
        return forward, backward, end
    forward_start = min(launch.start_us for launch in launches[low:middle])
    backward_end = max(launch.end_us for launch in launches[low:middle])
    return forward_start, backward_end, max([backward_end, *(launch.end_us for launch in launches[middle:high])])


def measure_loader_wait(
    marks: HostMarks, host_step: HostStep, previous_end: float | None, forward: float | None
) -> float | None:
    """Return the host's wait for the batch of a step.

    None if the trace has no DataLoader, or if a step without a previous one has none: its batch may have come earlier.
    """
    if not marks.loaders or (previous_end is None and not select_spans(marks.loaders, host_step.start, host_step.end)):
        return None
    until = host_step.end if forward is None else forward
    return sum(stop - start for start, stop in select_spans(marks.loaders, host_step.start, until))


def describe_time_points(result: FoundSteps, marks: HostMarks, on_device: bool) -> list[str]:
    """Return sentences about how the time points of the steps were found."""
    if not result.steps:
        return []
    if not result.phases_measured:
        return [
            "The start of the forward pass or the end of the backward pass of a step is not in the trace: "
            "the complete step counts as forward + backward."
        ]
    forward = "the first operator with a backward operator" if marks.flows else "the first operator that is not a copy"
    backward = "the last evaluation of the autograd engine" if marks.engine else "the start of Optimizer.step"
    ending = "the end of Optimizer.step" if marks.optimizers else "the end of ProfilerStep#n"
    clock = "on the device, by the kernels launched in between" if on_device else "on the host"
    sentences = [
        f"Forward start: {forward}. Backward end: {backward}. End of a step: {ending}.",
        f"The times are {clock}; the profiler was on, which makes steps longer.",
    ]
    return sentences if marks.loaders else [*sentences, "The trace has no DataLoader: the wait for data is not known."]


# Collectives


def add_collectives(
    steps: Sequence[Step], collectives: Iterable[Collective], computing: Iterable[Span] | None
) -> list[Step]:
    """Return the steps with the collectives that began in them.

    `computing` are the spans in which the rank's device computed; they give the exposed times. With None, collectives
    keep their exposed times, which may be unknown.
    """
    ordered = sorted(collectives, key=lambda collective: collective.start_us)
    busy = None if computing is None else join_spans(computing)
    starts = [collective.start_us for collective in ordered]
    completed = []
    for step in steps:
        begun = ordered[bisect_left(starts, step.start_us) : bisect_left(starts, step.end_us)]
        measured = begun if busy is None else [measure_exposed(collective, busy) for collective in begun]
        completed.append(replace(step, collectives=tuple(measured)) if begun else step)
    return completed


def measure_exposed(collective: Collective, busy: list[Span]) -> Collective:
    """Return the collective with its exposed time: the part of its duration outside the spans in `busy`."""
    span = (collective.start_us, collective.start_us + collective.duration_us)
    low = max(bisect_left(busy, (span[0],)) - 1, 0)
    high = bisect_left(busy, (span[1],))
    return replace(collective, exposed_us=sum_spans(remove_spans([span], busy[low:high])))
