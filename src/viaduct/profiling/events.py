"""Events of a Chrome trace that torch.profiler wrote, nested by thread.

    events = nest_events(json.load(file)["traceEvents"])
    operators = [event for event in events if event.category == "cpu_op"]
    child_times = sum_children(operators)
    operators[0].parent, operators[0].duration - child_times.get(id(operators[0]), 0.0)     # its self time

The categories below are those of all supported releases of torch. Importing this module does not import torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Categories of events.
OPERATOR, ANNOTATION, PYTHON = "cpu_op", "user_annotation", "python_function"
RUNTIMES = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# Of events of the host with the same times, the one with the first of these categories is the outermost.
ON_HOST = (PYTHON, ANNOTATION, OPERATOR, *RUNTIMES)

# Prefixes of the names of events: fetching a batch, an optimizer's step or zero_grad, evaluating a node of autograd.
LOADER, OPTIMIZER, ENGINE = "enumerate(DataLoader)", "Optimizer.", "autograd::engine::evaluate_function"
OPTIMIZER_STEP = f"{OPTIMIZER}step#"
Span = tuple[float, float]  # start and end
RawEvent = dict[str, Any]  # an event as in the JSON of a trace


@dataclass(eq=False, slots=True)
class Event:
    """One event with a duration; `parent` is the event around it in the same thread."""

    name: str
    category: str
    start: float
    duration: float
    thread: Any
    args: dict[str, Any]
    parent: Event | None = None

    @property
    def end(self) -> float:
        return self.start + self.duration

    def find_enclosing(self, category: str) -> Event | None:
        """Return the innermost event of a category around this one, or None."""
        event = self.parent
        while event is not None and event.category != category:
            event = event.parent
        return event


def read_event(raw: RawEvent) -> Event | None:
    """Return a complete event of the trace; None for flows, instants, metadata and damaged events."""
    start, duration = raw.get("ts"), raw.get("dur")
    if raw.get("ph") != "X" or not isinstance(start, int | float) or not isinstance(duration, int | float):
        return None
    args = raw["args"] if isinstance(raw.get("args"), dict) else {}
    thread = (raw.get("pid"), raw.get("tid"))
    return Event(str(raw.get("name", "")), str(raw.get("cat", "")), start, duration, thread, args)


def nest_events(raw_events: Iterable[RawEvent]) -> list[Event]:
    """Return the events of host and device in order of time; events of the host get their parent."""
    events = [event for event in map(read_event, raw_events) if event is not None]
    order = {category: number for number, category in enumerate(ON_HOST)}
    events.sort(key=lambda event: (event.start, -event.duration, order.get(event.category, len(order))))
    open_events: dict[Any, list[Event]] = defaultdict(list)  # by thread, the innermost last
    for event in events:
        if event.category in ON_HOST:
            attach_to_parent(event, open_events[event.thread])
    return [event for event in events if event.category in (*ON_HOST, *ON_DEVICE)]


def drop_idle_functions(raw_events: list[RawEvent]) -> list[RawEvent]:
    """Return the events, except Python functions in which no event of another kind began."""
    starts: dict[Any, list[float]] = defaultdict(list)
    for raw in raw_events:
        if raw.get("ph") == "X" and raw.get("cat") != PYTHON and isinstance(raw.get("ts"), int | float):
            starts[raw.get("tid")].append(raw["ts"])
    for times in starts.values():
        times.sort()

    def is_idle(raw: RawEvent) -> bool:
        times = starts.get(raw.get("tid"), [])
        index = bisect_left(times, raw.get("ts", 0))
        return index == len(times) or times[index] > raw.get("ts", 0) + raw.get("dur", 0)

    return [raw for raw in raw_events if raw.get("cat") != PYTHON or not is_idle(raw)]


def attach_to_parent(event: Event, open_events: list[Event]) -> None:
    """Close the events that have ended, set the parent of an event to the innermost open one, and open the event."""
    while open_events and open_events[-1].end <= event.start:
        open_events.pop()
    event.parent = open_events[-1] if open_events else None
    open_events.append(event)


def sum_children(operators: Iterable[Event]) -> dict[int, float]:
    """Return the total time of each operator's direct children, by id(operator), for operators that have some."""
    totals: dict[int, float] = {}
    for event in operators:
        outer = event.find_enclosing(OPERATOR)
        if outer is not None:
            totals[id(outer)] = totals.get(id(outer), 0.0) + event.duration
    return totals


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans as disjoint spans in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def remove_spans(spans: Sequence[Span], removed: Sequence[Span]) -> list[Span]:
    """Return the parts of spans outside `removed`; both inputs and the result are disjoint and in order."""
    remaining: list[Span] = []
    first = 0  # index of the first removed span that ends after the start of the present span
    for start, end in spans:
        while first < len(removed) and removed[first][1] <= start:
            first += 1
        remaining_start = start  # of the present span
        for index in range(first, len(removed)):
            removed_start, removed_end = removed[index]
            if removed_start >= end:
                break
            if removed_start > remaining_start:
                remaining.append((remaining_start, removed_start))
            remaining_start = max(remaining_start, removed_end)
        if remaining_start < end:
            remaining.append((remaining_start, end))
    return remaining


def sum_spans(spans: Iterable[Span]) -> float:
    """Return the total length of disjoint spans."""
    return sum(end - start for start, end in spans)
