"""Phase, module and script line of each operator in a trace.

    trace = Trace.read(raw_events, step_spans=[(start, end), …], main_thread=(pid, tid), device="cpu")
    trace.contexts[id(operator)].module

The events around an operator in its thread give its phase, module and line: `Optimizer.step#…` is the update,
`enumerate(DataLoader)#…` data, an evaluation of the autograd engine the backward pass. A backward operator has the
module and line of the forward operator with its sequence number. Importing this module does not import torch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
"""Phase of unmarked operators that follow the forward pass (the loss) or the backward pass (gradient clipping)."""


@dataclass
class Trace:
    """Events of the recorded steps and their contexts."""

    events: list[Event]
    step_spans: list[Span]  # start and end of each recorded step, in order
    main_thread: Any  # (process, thread) of the training loop
    device: str = "cpu"
    locations: dict[int, str] = field(default_factory=dict)  # line of the script, by id of a Python function's event

    @classmethod
    def read(cls, raw_events: Iterable[dict[str, Any]], step_spans: list[Span], main_thread: Any, device: str) -> Trace:
        """Return the nested events of a trace."""
        return cls(nest_events(raw_events), step_spans, main_thread, device)

    @cached_property
    def operators(self) -> list[Event]:
        """Operators that began within a recorded step, in order of time."""
        return [event for event in self.events if event.category == OPERATOR and self.is_in_step(event.start)]

    def is_in_step(self, moment: float) -> bool:
        """Return True for a moment within a recorded step; the gaps between the spans are steps that were left out."""
        number = bisect_right(self.step_spans, moment, key=lambda span: span[0]) - 1
        return number >= 0 and moment < self.step_spans[number][1]

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

    def find_typical_time_per_step(self, times: Iterable[tuple[float, float]]) -> float:
        """Return the median sum per step of (moment, time) pairs, or the mean if some step has no such event."""
        starts = [start for start, _ in self.step_spans]
        sums = [0.0] * len(starts)
        present = set()  # indices of steps with such an event
        for moment, duration in times:
            number = max(0, bisect_right(starts, moment) - 1)
            sums[number] += duration
            present.add(number)
        return median(sums) if len(present) == len(sums) else sum(sums) / len(sums)


@dataclass(frozen=True)
class Context:
    """Phase, module and script line of an operator; "" for an unknown module or line."""

    phase: Phase = "other"
    module: str = ""
    location: str = ""
    reads_host_values: bool = False  # inside loader or optimizer, whose scalars are on the host: no wait for the device


@dataclass(frozen=True)
class Surroundings:
    """What the name of an event and the events around it say about it."""

    phase: Phase | None = None
    module: str = ""
    python: Event | None = None  # the innermost Python function
    sequence: int | None = None  # sequence number of the backward function around it
    reads_host_values: bool = False


def find_contexts(trace: Trace) -> dict[int, Context]:
    """Return the context of each operator, by id."""
    surroundings = find_surroundings(trace)
    forward_operators = find_forward_operators(trace.operators, surroundings)
    trained = {id(operator) for operator in forward_operators.values()}  # operators with a gradient
    contexts: dict[int, Context] = {}
    running: Phase = "other"  # present phase of the training loop
    for event in trace.operators:
        around = surroundings[id(event)]
        known_phase = around.phase or ("forward" if around.module or id(event) in trained else None)
        # Autograd may run the backward pass in its own thread; operators in other threads do not change the phase.
        if known_phase and (event.thread == trace.main_thread or known_phase == "backward"):
            running = known_phase
        outer = contexts.get(id(event.find_enclosing(OPERATOR)))
        phase = known_phase or (outer.phase if outer is not None else FOLLOWING.get(running, "other"))
        forward = forward_operators.get(around.sequence) if phase == "backward" else None
        owner = surroundings[id(forward)] if forward is not None else around
        location = trace.locations.get(id(owner.python), "") or trace.locations.get(id(around.python), "")
        contexts[id(event)] = Context(phase, around.module or owner.module, location, around.reads_host_values)
    return contexts


def find_surroundings(trace: Trace) -> dict[int, Surroundings]:
    """Return the surroundings of each event of the host, by id."""
    surroundings: dict[int, Surroundings] = {}
    for event in trace.events:
        if event.category in ON_DEVICE:
            continue
        around = surroundings[id(event.parent)] if event.parent is not None else Surroundings()
        if event.category == ANNOTATION:
            around = replace(around, **read_annotation(event.name))
        elif event.category == PYTHON:
            is_backward = event.name.startswith("torch/_tensor.py(") and event.name.endswith(": backward")
            around = replace(
                around,
                phase="backward" if is_backward else around.phase,
                python=event,
                reads_host_values=around.reads_host_values or event.name.startswith(LOADER_FILES),
            )
        elif event.category == OPERATOR and event.name.startswith(ENGINE):
            # The forward operator with this sequence number gives the module (find_contexts).
            around = replace(around, phase="backward", module="", sequence=event.args.get("Sequence number"))
        surroundings[id(event)] = around
    return surroundings


def read_annotation(name: str) -> dict[str, Any]:
    """Return the fields of Surroundings that the name of an annotation gives."""
    if name.startswith(MODULE_ANNOTATION):
        return {"module": name.removeprefix(MODULE_ANNOTATION)}
    if name.startswith(OPTIMIZER):
        return {"phase": "update", "reads_host_values": True}
    return {"phase": "data", "reads_host_values": True} if name.startswith(LOADER) else {}


def find_forward_operators(
    operators: Iterable[Event], surroundings: dict[int, Surroundings]
) -> dict[int | None, Event]:
    """Return the forward operator for each sequence number of a backward function.

    Operators without a gradient have the number of the next backward function, too. So the forward operator is the last
    operator with this number before the backward function.
    """
    latest: dict[int, Event] = {}
    found: dict[int | None, Event] = {}
    for event in operators:
        around, number = surroundings[id(event)], event.args.get("Sequence number")
        if around.sequence in latest and around.sequence not in found:
            found[around.sequence] = latest[around.sequence]
        elif isinstance(number, int) and around.phase is None:
            latest[number] = event
    return found
