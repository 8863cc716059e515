"""Where the time of a step goes: one look with torch.profiler, after the timed windows, never during them.

On CUDA the kernels are divided by kind, and each moment belongs to the kernel that began first, so that kernels side by
side are not counted twice. What is left of the step as it was timed without the profiler is a gap: the card has nothing
to do. A gap while the host fetches a batch is data wait. On the CPU operators are divided, by the time that is their
own; what no operator takes is Python.
"""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from viaduct.profiling import kinds

FETCH = "viaduct: next batch"
WINDOW = "viaduct: window"
UPDATE = "Optimizer.step#"  # the mark that torch puts around every optimizer's step, our own ones' too
ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
LARGEST = 12  # kernels that are named
Span = tuple[float, float]


@dataclass(frozen=True)
class Shares:
    """Of one step: milliseconds by kind, the device's idle time, and the part of it that waits for data."""

    by_kind: dict[str, float] = field(default_factory=dict)
    host_gaps: float = 0.0
    data_wait: float = 0.0
    largest: list[dict[str, Any]] = field(default_factory=list)
    kernels: int = 0
    why_not: str | None = None


def look(run: Callable[[int], object], steps: int, kind: str, ms_per_step: float) -> Shares:
    """One profile of some steps, whose time was measured without it."""
    if kind not in ("cpu", "cuda"):
        return Shares(why_not=f"torch.profiler does not see the kernels of {kind}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it talks of its own start and stop on stderr
    if kind == "cuda":
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")  # or captured graphs replay under it at a crawl
    for _ in range(2 if kind == "cuda" else 1):  # the first one on a card starts the profiler itself
        events = trace(run, steps, kind)
    if kind == "cpu":
        return of_operators(events, steps, ms_per_step)
    return of_kernels(events, steps, ms_per_step)


def trace(run: Callable[[int], object], steps: int, kind: str) -> list[dict[str, Any]]:
    """The events of some steps, as Chrome's trace format has them: categories in it are the same in every torch."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (kind == "cuda")
    with profile(activities=activities) as profiler, record_function(WINDOW):
        run(steps)
        if kind == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


@contextmanager
def fetching() -> Iterator[None]:
    """Marks the time in which the host fetches a batch."""
    with record_function(FETCH):
        yield


def of_kernels(events: list[dict[str, Any]], steps: int, ms_per_step: float) -> Shares:
    on_card = sorted((event for event in events if event.get("cat") in ON_CARD), key=lambda event: event["ts"])
    if not on_card:
        return Shares(why_not="the profiler saw no kernel")
    launched = launching_kinds(events)
    by_name: dict[tuple[str, str], list[float]] = {}
    gaps: list[Span] = []
    covered = on_card[0]["ts"]
    for event in on_card:
        begin, end = event["ts"], event["ts"] + event["dur"]
        if begin > covered:
            gaps.append((covered, begin))
        own = max(0.0, end - max(begin, covered))
        by_name.setdefault((event["name"], kind_of(event, launched)), []).append(own)
        covered = max(covered, end)
    busy = sum(sum(times) for times in by_name.values()) / 1000 / steps
    scale = min(1.0, ms_per_step / busy)  # the profiler may slow kernels down, but never makes a step longer than it is
    by_kind = in_kinds({key: scale * sum(times) for key, times in by_name.items()}, steps)
    idle = max(0.0, ms_per_step - busy)
    waiting = overlap(gaps, spans(events, FETCH)) / max(sum(end - begin for begin, end in gaps), 1e-9)
    largest = largest_of(by_name, steps, scale)
    return Shares(by_kind, idle * (1 - waiting), idle * waiting, largest, round(len(on_card) / steps))


def kind_of(event: dict[str, Any], launched: dict[Any, str]) -> str:
    """By the operator that launched it, where that is known and says something; else by its name."""
    by_name = kinds.of_kernel(event["name"])
    if launched.get((event.get("args") or {}).get("External id")) == kinds.OPTIMIZER:
        return kinds.OPTIMIZER
    if by_name not in (kinds.PRODUCT, kinds.OTHER):
        return by_name
    operator = launched.get((event.get("args") or {}).get("External id"), kinds.OTHER)
    return operator if operator in (kinds.CONVOLUTION, kinds.NORMALISATION, kinds.POOLING) else by_name


def launching_kinds(events: list[dict[str, Any]]) -> dict[Any, str]:
    """External id -> the kind of the operator that has it."""
    updates, found = Updates(events), {}
    for event in events:
        if event.get("cat") == "cpu_op":
            found[(event.get("args") or {}).get("External id")] = updates.kind_of(event)
    return found


class Updates:
    """Whatever runs inside of an optimizer's step is the optimizer's, be it a norm or a matrix product."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        marked = (event for event in events if str(event["name"]).startswith(UPDATE))
        found = [(event["ts"], ends(event)) for event in marked if event.get("cat") == "user_annotation"]
        self.spans = outermost(found)  # THOR's holds that of the SGD which it ends with
        self.begins = [begin for begin, _ in self.spans]

    def kind_of(self, operator: dict[str, Any]) -> str:
        place = bisect_right(self.begins, operator["ts"]) - 1
        inside = place >= 0 and operator["ts"] < self.spans[place][1]
        return kinds.OPTIMIZER if inside else kinds.of_operator(operator["name"])


def of_operators(events: list[dict[str, Any]], steps: int, ms_per_step: float) -> Shares:
    """Scaled to the step as it was timed: the profiler itself slows operators down."""
    window = spans(events, WINDOW)[0]
    fetched = spans(events, FETCH)
    busiest = next(event["tid"] for event in events if event["name"] == WINDOW)
    inside = [event for event in events if event.get("cat") == "cpu_op" and event["tid"] == busiest]
    updates = Updates(events)
    by_name: dict[tuple[str, str], list[float]] = {}
    for event, own in own_times(inside):
        if not any(begin <= event["ts"] < end for begin, end in fetched):
            by_name.setdefault((event["name"], updates.kind_of(event)), []).append(own)
    scale = ms_per_step / ((window[1] - window[0]) / 1000 / steps)
    by_kind = in_kinds({key: scale * sum(times) for key, times in by_name.items()}, steps)
    waiting = scale * sum(end - begin for begin, end in fetched) / 1000 / steps
    python = max(0.0, ms_per_step - sum(by_kind.values()) - waiting)
    return Shares(by_kind, python, waiting, largest_of(by_name, steps, scale), round(len(inside) / steps))


def own_times(events: list[dict[str, Any]]) -> Iterable[tuple[dict[str, Any], float]]:
    """Each event with the time that no event inside it takes."""
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    own = [event["dur"] for event in ordered]
    outside: list[int] = []
    for place, event in enumerate(ordered):
        while outside and ends(ordered[outside[-1]]) <= event["ts"]:
            outside.pop()
        if outside:
            own[outside[-1]] -= event["dur"]
        outside.append(place)
    return zip(ordered, (max(0.0, time) for time in own), strict=True)


def ends(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def in_kinds(totals: dict[tuple[str, str], float], steps: int) -> dict[str, float]:
    """Milliseconds a step, the kinds in their usual order; those without time are left out."""
    found = dict.fromkeys(kinds.KINDS, 0.0)
    for (_, kind), microseconds in totals.items():
        found[kind] += microseconds / 1000 / steps
    return {kind: time for kind, time in found.items() if time}


def largest_of(by_name: dict[tuple[str, str], list[float]], steps: int, scale: float = 1.0) -> list[dict[str, Any]]:
    ranked = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:LARGEST]
    return [
        {"name": name, "kind": kind, "ms": scale * sum(times) / 1000 / steps, "calls": len(times) / steps}
        for (name, kind), times in ranked
    ]


def spans(events: list[dict[str, Any]], name: str) -> list[Span]:
    found = (event for event in events if event["name"] == name and event.get("cat") == "user_annotation")
    return [(event["ts"], ends(event)) for event in found]


def outermost(found: list[Span]) -> list[Span]:
    """Without those that lie inside of another, in order."""
    kept: list[Span] = []
    for begin, end in sorted(found, key=lambda span: (span[0], -span[1])):
        if not kept or end > kept[-1][1]:
            kept.append((begin, end))
    return kept


def overlap(gaps: list[Span], others: list[Span]) -> float:
    return sum(max(0.0, min(end, stop) - max(begin, start)) for begin, end in gaps for start, stop in others)
