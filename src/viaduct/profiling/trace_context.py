"""Phase, module and script line of each operator in a trace.

    trace = Trace.read(raw_events, windows=[(start, end), …], main_thread=(pid, tid), device="cpu")
    trace.contexts[id(operator)].module

The events around an operator in its thread give its phase, module and line: `Optimizer.step#…` is the update,
`enumerate(DataLoader)#…` data, an evaluation of the autograd engine the backward pass. A backward operator has the
module and line of the forward operator with its sequence number. Importing this module does not import torch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from viaduct.profiling.events import (
    ANNOTATION,
    ENGINE,
    LOADER,
    ON_DEVICE,
    OPERATOR,
    OPTIMIZER,
    PYTHON,
    Event,
    Span,
    nest_events,
    sum_children,
)
from viaduct.profiling.record import Phase

MODULE_ANNOTATION = "viaduct.module:"  # annotations around the forward pass of a module
LOADER_FILES = "torch/utils/data"
FOLLOWING: dict[Phase, Phase] = {"forward": "forward", "backward": "update"}
"""Phase of an unmarked operator after an operator of this phase, such as a loss or gradient clipping."""


@dataclass
class Trace:
    """Events of the recorded steps and their contexts."""

    events: list[Event]
    windows: list[Span]  # start and end of each recorded step, in order
    main_thread: Any  # (process, thread) of the training loop
    device: str = "cpu"
    lines: dict[int, str] = field(default_factory=dict)  # id of a Python function -> script's line (locations.py)

    @classmethod
    def read(cls, raw_events: Iterable[dict[str, Any]], windows: list[Span], main_thread: Any, device: str) -> Trace:
        """Return the nested events of a trace."""
        return cls(nest_events(raw_events), windows, main_thread, device)

    @cached_property
    def operators(self) -> list[Event]:
        """Operators that began within a recorded step, in order of time."""
        return [event for event in self.events if event.category == OPERATOR and self.is_in_step(event.start)]

    def is_in_step(self, moment: float) -> bool:
        """Return True for a moment within a recorded step; the gaps between windows are steps that were left out."""
        number = bisect_right(self.windows, moment, key=lambda window: window[0]) - 1
        return number >= 0 and moment < self.windows[number][1]

    @cached_property
    def child_times(self) -> dict[int, float]:
        """Total time of each operator's direct children, by id."""
        return sum_children(self.operators)

    def get_self_time(self, operator: Event) -> float:
        """Return the time of an operator without the operators that it calls."""
        return max(0.0, operator.duration - self.child_times.get(id(operator), 0.0))

    @cached_property
    def contexts(self) -> dict[int, Context]:
        """Context of each operator, by id."""
        return find_contexts(self)

    def find_typical(self, times: Iterable[tuple[float, float]]) -> float:
        """Return the median sum per step of (moment, time) pairs, or the mean if some step has no such event."""
        starts = [start for start, _ in self.windows]
        sums = [0.0] * len(starts)
        present = set()  # indices of steps with such an event
        for moment, duration in times:
            number = max(0, bisect_right(starts, moment) - 1)
            sums[number] += duration
            present.add(number)
        return median(sums) if len(present) == len(sums) else sum(sums) / len(sums)


@dataclass(frozen=True)
class Context:
    """Phase, module and script line of an operator."""

    phase: Phase = "other"
    module: str = ""
    location: str = ""
    on_host: bool = False  # inside the loader or the optimizer; their values are on the host


@dataclass
class Mark:
    """Context of an event from the events around it."""

    phase: Phase | None = None
    module: str = ""
    python: Event | None = None
    sequence: int | None = None  # of the backward function around it
    on_host: bool = False


def find_contexts(trace: Trace) -> dict[int, Context]:
    marks = mark_events(trace)
    sources = find_sources(trace.operators, marks)
    trained = {id(source) for source in sources.values()}  # operators with a gradient
    contexts: dict[int, Context] = {}
    running: Phase = "other"
    for event in trace.operators:
        mark = marks[id(event)]
        marked = mark.phase or ("forward" if mark.module or id(event) in trained else None)
        if marked and (event.thread == trace.main_thread or marked == "backward"):
            running = marked
        outer = contexts.get(id(event.find_enclosing(OPERATOR)))
        phase = marked or (outer.phase if outer is not None else FOLLOWING.get(running, "other"))
        source = sources.get(mark.sequence) if phase == "backward" else None
        origin = marks[id(source)] if source is not None else mark
        location = trace.lines.get(id(origin.python), "") or trace.lines.get(id(mark.python), "")
        contexts[id(event)] = Context(phase, mark.module or origin.module, location, mark.on_host)
    return contexts


def mark_events(trace: Trace) -> dict[int, Mark]:
    """Return the mark of each event of the host, by id."""
    marks: dict[int, Mark] = {}
    for event in trace.events:
        if event.category in ON_DEVICE:
            continue
        outer = marks[id(event.parent)] if event.parent is not None else Mark()
        mark = Mark(outer.phase, outer.module, outer.python, outer.sequence, outer.on_host)
        if event.category == ANNOTATION:
            mark_annotation(mark, event)
        elif event.category == PYTHON:
            mark.python = event
            mark.on_host = mark.on_host or event.name.startswith(LOADER_FILES)
            if event.name.startswith("torch/_tensor.py(") and event.name.endswith(": backward"):
                mark.phase = "backward"
        elif event.category == OPERATOR and event.name.startswith(ENGINE):
            mark.phase, mark.sequence, mark.module = "backward", event.args.get("Sequence number"), ""
        marks[id(event)] = mark
    return marks


def mark_annotation(mark: Mark, event: Event) -> None:
    """Set module or phase by the name of an annotation."""
    if event.name.startswith(MODULE_ANNOTATION):
        mark.module = event.name.removeprefix(MODULE_ANNOTATION)
    elif event.name.startswith(OPTIMIZER):
        mark.phase, mark.on_host = "update", True
    elif event.name.startswith(LOADER):
        mark.phase, mark.on_host = "data", True


def find_sources(operators: Iterable[Event], marks: dict[int, Mark]) -> dict[int | None, Event]:
    """Return the forward operator of each sequence number of a backward function.

    An operator without a gradient has the number of the next function, so the last operator with a number before its
    backward function is the right one.
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
