"""Time of a step by kind of operator, from torch.profiler, which runs after the timed windows.

On CUDA, kernels are grouped by kind. Where kernels overlap, the time belongs to the kernel that began first. The idle
time of the card is the step time, measured without the profiler, minus the kernels' time. It is divided like the gaps
between the kernels: into data wait, while the host fetches a batch, and host gaps. On the CPU, the self times of
operators are grouped by kind; the fetches are data wait, and the time outside all operators is host gaps: mostly
Python.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from viaduct.profiling import kinds
from viaduct.profiling.events import (
    ANNOTATION,
    ON_DEVICE,
    OPERATOR,
    OPTIMIZER_STEP,
    Event,
    Span,
    join_spans,
    nest_events,
    remove_spans,
    sum_children,
    sum_spans,
)
from viaduct.profiling.recorder import export_events
from viaduct.torch_compat import hide_profiler_cycle_warning

# Our annotations in the trace: around the fetch of each batch, and around all profiled steps.
FETCH, WINDOW = "viaduct: next batch", "viaduct: window"
LARGEST = 12  # kernels that the record lists


@dataclass(frozen=True)
class Shares:
    """Milliseconds of one step: by kind of operator, idle because of the host (`host_gaps`), and waiting for data."""

    by_kind: dict[str, float] = field(default_factory=dict)
    host_gaps: float = 0.0  # on the CPU: time outside operators and fetches
    data_wait: float = 0.0
    largest: list[dict[str, Any]] = field(default_factory=list)  # rows of `find_largest`
    kernels: int = 0  # number of kernels; on the CPU, of operators
    why_not: str | None = None  # the reason if the shares are not known


def profile_steps(run: Callable[[int], object], steps: int, device_type: str, ms_per_step: float) -> Shares:
    """Profile some steps and divide `ms_per_step`, which was measured without the profiler, by kind of operator."""
    if device_type not in ("cpu", "cuda"):
        return Shares(why_not=f"torch.profiler does not see the kernels of {device_type}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise Kineto logs its start and stop to stderr
    if device_type == "cuda":
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")  # otherwise captured graphs replay slowly
    for _ in range(2 if device_type == "cuda" else 1):  # on a card, the first trace includes the profiler's own start
        events = record_trace(run, steps, device_type)
    if device_type == "cpu":
        return attribute_operators(events, steps, ms_per_step)
    return attribute_kernels(events, steps, ms_per_step)


def record_trace(run: Callable[[int], object], steps: int, device_type: str) -> list[Event]:
    """Run some steps under torch.profiler and return the events of the trace."""
    cuda = [ProfilerActivity.CUDA] if device_type == "cuda" else []
    activities = [ProfilerActivity.CPU, *cuda]
    with hide_profiler_cycle_warning(), profile(activities=activities) as profiler, record_function(WINDOW):
        run(steps)
        if cuda:
            torch.cuda.synchronize()
    return nest_events(export_events(profiler)[0])


def attribute_kernels(events: list[Event], steps: int, ms_per_step: float) -> Shares:
    """Divide a step's time by the kinds of its CUDA kernels, host gaps and data wait."""
    on_card = [event for event in events if event.category in ON_DEVICE]
    if not on_card:
        return Shares(why_not="the profiler saw no kernel")
    kind_by_id = map_launching_kinds(events)
    by_name: dict[tuple[str, str], list[float]] = {}
    gaps: list[Span] = []
    covered = on_card[0].start  # kernels have been counted up to this time
    for event in on_card:
        if event.start > covered:
            gaps.append((covered, event.start))
        exclusive_time = max(0.0, event.end - max(event.start, covered))
        by_name.setdefault((event.name, find_kernel_kind(event, kind_by_id)), []).append(exclusive_time)
        covered = max(covered, event.end)
    busy = sum(sum(times) for times in by_name.values()) / 1000 / steps
    scale = min(1.0, ms_per_step / busy)  # the profiler may slow kernels down; their sum cannot exceed the step
    by_kind = sum_by_kind({key: scale * sum(times) for key, times in by_name.items()}, steps)
    idle = max(0.0, ms_per_step - busy)
    gap_time = sum_spans(gaps)
    gap_time_in_fetches = gap_time - sum_spans(remove_spans(gaps, join_spans(find_spans(events, FETCH))))
    waiting_share = gap_time_in_fetches / max(gap_time, 1e-9)
    largest = find_largest(by_name, steps, scale)
    return Shares(by_kind, idle * (1 - waiting_share), idle * waiting_share, largest, round(len(on_card) / steps))


def find_kernel_kind(event: Event, kind_by_id: dict[Any, str]) -> str:
    """Return a kernel's kind by its name, or by the operator that launched it if the operator says more."""
    operator = kind_by_id.get(event.args.get("External id"), kinds.OTHER)
    kernel = kinds.classify_kernel(event.name)
    if operator == kinds.OPTIMIZER:
        return operator
    is_vague = kernel in (kinds.PRODUCT, kinds.OTHER)
    return operator if is_vague and operator in (kinds.CONVOLUTION, kinds.NORMALISATION, kinds.POOLING) else kernel


def map_launching_kinds(events: list[Event]) -> dict[Any, str]:
    """Return the kind of each operator by its External id, which its kernels have too."""
    updates = OptimizerSpans(events)
    operators = (event for event in events if event.category == OPERATOR)
    return {event.args.get("External id"): updates.classify(event) for event in operators}


class OptimizerSpans:
    """Time spans of the optimizer steps; every operator inside one counts as optimizer, even a norm or a product."""

    def __init__(self, events: list[Event]) -> None:
        updates = (event for event in events if event.category == ANNOTATION and event.name.startswith(OPTIMIZER_STEP))
        self.spans = join_spans((event.start, event.end) for event in updates)  # a span of THOR contains one of its SGD
        self.begins = [begin for begin, _ in self.spans]

    def classify(self, operator: Event) -> str:
        index = bisect_right(self.begins, operator.start) - 1
        is_inside = index >= 0 and operator.start < self.spans[index][1]
        return kinds.OPTIMIZER if is_inside else kinds.classify_operator(operator.name)


def attribute_operators(events: list[Event], steps: int, ms_per_step: float) -> Shares:
    """Divide a step's time by the kinds of its CPU operators, scaled to `ms_per_step` as the profiler slows them."""
    window = next(event for event in events if event.name == WINDOW)
    fetches = find_spans(events, FETCH)
    operators = [event for event in events if event.category == OPERATOR and event.thread == window.thread]
    child_times = sum_children(operators)
    updates = OptimizerSpans(events)
    by_name: dict[tuple[str, str], list[float]] = {}
    for event in operators:
        if not any(begin <= event.start < end for begin, end in fetches):
            self_time = max(0.0, event.duration - child_times.get(id(event), 0.0))
            by_name.setdefault((event.name, updates.classify(event)), []).append(self_time)
    scale = ms_per_step / (window.duration / 1000 / steps)
    by_kind = sum_by_kind({key: scale * sum(times) for key, times in by_name.items()}, steps)
    waiting = scale * sum_spans(fetches) / 1000 / steps
    python = max(0.0, ms_per_step - sum(by_kind.values()) - waiting)
    return Shares(by_kind, python, waiting, find_largest(by_name, steps, scale), round(len(operators) / steps))


def sum_by_kind(totals: dict[tuple[str, str], float], steps: int) -> dict[str, float]:
    """Return milliseconds per step by kind, in the order of KINDS, without kinds that took no time."""
    times = dict.fromkeys(kinds.KINDS, 0.0)
    for (_, kind), microseconds in totals.items():
        times[kind] += microseconds / 1000 / steps
    return {kind: time for kind, time in times.items() if time}


def find_largest(by_name: dict[tuple[str, str], list[float]], steps: int, scale: float) -> list[dict[str, Any]]:
    """Return the LARGEST kernels or operators by time, each with its name, kind, and per step its `ms` and `calls`.

    `by_name` has the microseconds of each of their calls, by name and kind.
    """
    ranked = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:LARGEST]
    return [
        {"name": name, "kind": kind, "ms": scale * sum(times) / 1000 / steps, "calls": len(times) / steps}
        for (name, kind), times in ranked
    ]


def find_spans(events: list[Event], name: str) -> list[Span]:
    """Return the spans of the annotations with this name."""
    return [(event.start, event.end) for event in events if event.name == name and event.category == ANNOTATION]
