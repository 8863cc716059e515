"""The trace of a profile for Perfetto and chrome://tracing.

One process a layer: the step trace of each rank as msprof draws it, the events that the recorder collected, the
figures of the system and the memory as counters. All times are microseconds.

    Step Trace    Iteration N, and in it Data_aug Bound, FP_BP Time N, Iteration Refresh N
                  Reduce_N_i on lines of their own, since they overlap the backward pass
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .record import Collective, Profile, Step

Event = dict[str, Any]
STEP_THREAD, REDUCE_THREAD = 0, 1
FLOWS = ("s", "t", "f")
OWN = "viaduct"  # in otherData: the processes that are drawn from the profile, not recorded


def build_trace(profile: Profile, events: Iterable[Event] = ()) -> dict[str, Any]:
    """Return the JSON object of the trace. `events` have the profile's clock; what no viewer could draw is left out."""
    recorded = clean_events(events)
    numbers = unused_numbers({event["pid"] for event in recorded})
    own = [*step_events(profile, numbers), *memory_events(profile, numbers), *system_events(profile, numbers)]
    timed = [*own, *recorded]
    origin = min((event["ts"] for event in timed if "ts" in event), default=0.0)
    if origin < 0:
        timed = [event | {"ts": event["ts"] - origin} if "ts" in event else event for event in timed]
    return {
        "traceEvents": [*timed, *name_processes(recorded)],
        "displayTimeUnit": "ms",
        "otherData": {OWN: sorted({event["pid"] for event in own}), "source": profile.facts.source},
    }


def unused_numbers(taken: set[Any]) -> Iterator[int]:
    """Yield process numbers that no recorded event has."""
    number = 1
    while True:
        if number not in taken and str(number) not in taken:
            yield number
        number += 1


def name_process(pid: int, name: str, order: int) -> list[Event]:
    return [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": order}},
    ]


def name_thread(pid: int, tid: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}},
    ]


# The step trace


def step_events(profile: Profile, numbers: Iterator[int]) -> list[Event]:
    """Return one process a rank with its iterations and their phases."""
    found: list[Event] = []
    for rank in profile.ranks:
        pid = next(numbers)
        name = f"Step Trace, rank {rank}" if len(profile.ranks) > 1 else "Step Trace"
        steps = [step for step in profile.steps if step.rank == rank]
        found += [*name_process(pid, name, rank), *name_thread(pid, STEP_THREAD, "Iterations")]
        found += [event for step in steps for event in phase_slices(step, pid)]
        found += reduce_slices(steps, pid)
    return found


def phase_slices(step: Step, pid: int) -> list[Event]:
    """Return the slices of one step: the iteration, and its parts inside of it."""
    begin = step.forward_start_us if step.previous_end_us is None else step.previous_end_us
    facts = {"loader wait us": step.loader_wait_us, "interrupted by": step.interrupted_by or None}
    if step.recompiled:
        facts |= {"graphs compiled": step.recompiled, "compile us": step.compile_us}
    known = {name: value for name, value in facts.items() if value is not None}
    parts = [(f"Iteration {step.number}", begin, step.end_us, known)]
    if step.previous_end_us is not None and not step.interrupted_by:
        parts.append(("Data_aug Bound", step.previous_end_us, step.forward_start_us, {}))
    parts.append((f"FP_BP Time {step.number}", step.forward_start_us, step.backward_end_us, {}))
    parts.append((f"Iteration Refresh {step.number}", step.backward_end_us, step.end_us, {}))
    return [draw_slice(pid, STEP_THREAD, *part) for part in parts]


def draw_slice(pid: int, tid: int, name: str, begin: float, end: float, facts: dict[str, Any]) -> Event:
    duration = max(end - begin, 0.0)
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin, "dur": duration, "args": facts}


def reduce_slices(steps: Sequence[Step], pid: int) -> list[Event]:
    """Return the collectives of the steps, those that overlap each other on different lines."""
    found: list[Event] = []
    free_at: list[float] = []  # of each line
    numbered = [(step, number, each) for step in steps for number, each in enumerate(step.collectives)]
    for step, number, collective in sorted(numbered, key=lambda entry: entry[2].start_us):
        line = next((n for n, free in enumerate(free_at) if free <= collective.start_us), len(free_at))
        free_at[line:] = [collective.start_us + collective.duration_us, *free_at[line + 1 :]]
        name = f"Reduce_{step.number}_{number}"
        end = collective.start_us + collective.duration_us
        found.append(draw_slice(pid, REDUCE_THREAD + line, name, collective.start_us, end, describe(collective)))
    threads = [event for line in range(len(free_at)) for event in name_thread(pid, REDUCE_THREAD + line, "Reduce")]
    return [*threads, *found]


def describe(collective: Collective) -> dict[str, Any]:
    facts = {"operation": collective.name, "bytes": collective.bytes, "exposed us": collective.exposed_us}
    return {name: value for name, value in facts.items() if value is not None}


# Counters


def memory_events(profile: Profile, numbers: Iterator[int]) -> list[Event]:
    """Return the memory of each rank as a counter."""
    found: list[Event] = []
    for rank in sorted({point.rank for point in profile.memory}):
        pid = next(numbers)
        found += name_process(pid, f"Memory, rank {rank}", 1000 + rank)
        for point in profile.memory:
            if point.rank == rank:
                found.append(draw_counter(pid, "allocated MiB", point.time_us, point.allocated / 2**20))
                if point.reserved is not None:
                    found.append(draw_counter(pid, "reserved MiB", point.time_us, point.reserved / 2**20))
    return found


def system_events(profile: Profile, numbers: Iterator[int]) -> list[Event]:
    """Return the figures of the system, one counter each."""
    if not profile.samples:
        return []
    pid = next(numbers)
    figures = [(sample.time_us, name, value) for sample in profile.samples for name, value in sample.values.items()]
    return [
        *name_process(pid, "System", 2000),
        *(draw_counter(pid, name, time, value) for time, name, value in figures),
    ]


def draw_counter(pid: int, name: str, time_us: float, value: float) -> Event:
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": time_us, "args": {"value": value}}


# Recorded events


def clean_events(events: Iterable[Event]) -> list[Event]:
    """Return the events that a viewer can draw: with finite times, begins with ends, flows with both ends."""
    timed = [event | {"tid": event.get("tid", 0)} for event in events if is_drawable(event)]
    unpaired = {*unpaired_slices(timed), *unpaired_flows(timed)}
    return [event for number, event in enumerate(timed) if number not in unpaired]


def is_drawable(event: Event) -> bool:
    if "ph" not in event or "pid" not in event:
        return False
    times = [event.get(name) for name in ("ts", "dur") if name in event]
    if not all(isinstance(time, int | float) and math.isfinite(time) for time in times):
        return False
    return event["ph"] == "M" or ("ts" in event and event.get("dur", 0) >= 0 and (event["ph"] != "X" or "dur" in event))


def unpaired_slices(events: Sequence[Event]) -> set[int]:
    """Return the numbers of begins without an end on their thread, and of ends without a begin."""
    opened: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    alone: set[int] = set()
    order = sorted((n for n, event in enumerate(events) if event["ph"] in "BE"), key=lambda n: float(events[n]["ts"]))
    for number in order:
        stack = opened[events[number]["pid"], events[number]["tid"]]
        if events[number]["ph"] == "B":
            stack.append(number)
        elif stack:
            stack.pop()
        else:
            alone.add(number)
    return alone.union(*opened.values())


def unpaired_flows(events: Sequence[Event]) -> set[int]:
    """Return the numbers of flow events whose flow lacks its start or its end."""
    groups: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        if event["ph"] in FLOWS:
            groups[event.get("cat"), event.get("id")].append(number)
    complete = {key for key, group in groups.items() if {"s", "f"} <= {events[n]["ph"] for n in group}}
    return {number for key, group in groups.items() if key not in complete for number in group}


def name_processes(events: Sequence[Event]) -> list[Event]:
    """Return names for recorded processes that have none."""
    known = {event["pid"] for event in events if event["ph"] == "M" and event.get("name") == "process_name"}
    nameless = dict.fromkeys(event["pid"] for event in events if event["pid"] not in known)
    return [entry for pid in nameless for entry in name_process(pid, f"Operators, process {pid}", 500)]
