"""The trace of a profile for Perfetto and chrome://tracing: trace.json, or trace.json.gz if it is large.

The trace has a process for the step trace of each rank as in msprof, counters of each rank's memory and of the system,
and the processes of recorded events. All times are microseconds. chrome://tracing fails from about 0.5 GB, and Perfetto
from about 2 GB.

    Step Trace    Iteration N, and in it Data_aug Bound, FP_BP Time N, Iteration Refresh N
                  Reduce_N_i on separate lines, because they overlap the backward pass
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from viaduct.atomic_files import replace_file
from viaduct.errors import BadData
from viaduct.json_records import finite_or_null

from .events import RawEvent
from .record import Profile, Step

STEP_THREAD, REDUCE_THREAD = 0, 1
# Positions of processes in the viewer, below the step traces of the ranks, whose positions are their numbers.
RECORDED_POSITION, MEMORY_POSITION, SYSTEM_POSITION = 500, 1000, 2000
FLOWS = ("s", "t", "f")  # "ph" of the events of a flow: start, step, finish
# Key in the trace's otherData: ids of the processes that were drawn from the profile; all others were recorded.
DRAWN_PIDS = "viaduct"
PLAIN_TRACE, PACKED_TRACE = "trace.json", "trace.json.gz"
PACK_FROM_BYTES = 20_000_000  # a larger trace is compressed
WARN_FROM_BYTES = 200_000_000  # a note warns of a larger trace


def build_trace(profile: Profile, events: Iterable[RawEvent] = ()) -> dict[str, Any]:
    """Return the JSON object of the trace; `events` have the profile's clock, and invalid ones are left out."""
    drawable = [event | {"tid": event.get("tid", 0)} for event in events if is_drawable(event)]
    unpaired = {*find_unpaired_slices(drawable), *find_unpaired_flows(drawable)}
    recorded = [event for number, event in enumerate(drawable) if number not in unpaired]
    recorded_pids = {str(event["pid"]) for event in recorded}
    pids = (number for number in itertools.count(1) if str(number) not in recorded_pids)
    drawn = [*draw_steps(profile, pids), *draw_memory(profile, pids), *draw_system(profile, pids)]
    shown = [*drawn, *recorded]
    named = {event["pid"] for event in recorded if event["ph"] == "M" and event.get("name") == "process_name"}
    nameless = dict.fromkeys(event["pid"] for event in recorded if event["pid"] not in named)
    names: list[RawEvent] = []
    for pid in nameless:
        names += name_row("process", pid, 0, f"Operators, process {pid}", RECORDED_POSITION)
    earliest = min((event["ts"] for event in shown if "ts" in event), default=0.0)
    if earliest < 0:  # a recorded event began before the profile's zero
        shown = [event | {"ts": event["ts"] - earliest} if "ts" in event else event for event in shown]
    return {
        "traceEvents": [*shown, *names],
        "displayTimeUnit": "ms",
        "otherData": {DRAWN_PIDS: sorted({event["pid"] for event in drawn}), "source": profile.facts.source},
    }


def name_row(kind: Literal["process", "thread"], pid: int, tid: int, name: str, position: int) -> list[RawEvent]:
    """Return the events that set the name and position of a process or thread; the lowest position is on top."""
    return [
        {"ph": "M", "pid": pid, "tid": tid, "name": f"{kind}_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": tid, "name": f"{kind}_sort_index", "args": {"sort_index": position}},
    ]


# The step trace


def draw_steps(profile: Profile, pids: Iterator[int]) -> list[RawEvent]:
    """Return a process for each rank, with its iterations and their phases."""
    events: list[RawEvent] = []
    for rank in profile.ranks:
        pid = next(pids)
        name = f"Step Trace, rank {rank}" if len(profile.ranks) > 1 else "Step Trace"
        steps = [step for step in profile.steps if step.rank == rank]
        events += name_row("process", pid, 0, name, rank)
        events += name_row("thread", pid, STEP_THREAD, "Iterations", STEP_THREAD)
        events += [event for step in steps for event in draw_phases(step, pid)]
        events += draw_collectives(steps, pid)
    return events


def draw_phases(step: Step, pid: int) -> list[RawEvent]:
    """Return the slices of one step: the iteration and its phases."""
    facts: dict[str, Any] = {"loader wait us": step.loader_wait_us, "interrupted by": step.interrupted_by or None}
    if step.recompiled:
        facts |= {"graphs compiled": step.recompiled, "compile us": step.compile_us}
    parts = [(f"Iteration {step.number}", step.start_us, step.end_us, facts)]
    if step.previous_end_us is not None and not step.interrupted_by:
        parts.append(("Data_aug Bound", step.previous_end_us, step.forward_start_us, {}))
    parts.append((f"FP_BP Time {step.number}", step.forward_start_us, step.backward_end_us, {}))
    parts.append((f"Iteration Refresh {step.number}", step.backward_end_us, step.end_us, {}))
    return [draw_slice(pid, STEP_THREAD, *part) for part in parts]


def draw_slice(pid: int, tid: int, name: str, begin: float, end: float, facts: dict[str, Any]) -> RawEvent:
    duration, known = max(end - begin, 0.0), {name: value for name, value in facts.items() if value is not None}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin, "dur": duration, "args": known}


def draw_collectives(steps: Sequence[Step], pid: int) -> list[RawEvent]:
    """Return the collectives of the steps; overlapping ones are on different lines."""
    slices: list[RawEvent] = []
    line_ends: list[float] = []  # end of the last collective on each line
    numbered = [(step, number, row) for step in steps for number, row in enumerate(step.collectives)]
    for step, number, collective in sorted(numbered, key=lambda entry: entry[2].start_us):
        start, end = collective.start_us, collective.start_us + collective.duration_us
        line = next((line for line, busy_until in enumerate(line_ends) if busy_until <= start), len(line_ends))
        line_ends[line : line + 1] = [end]  # appends if all lines are busy
        facts = {"operation": collective.name, "bytes": collective.bytes, "exposed us": collective.exposed_us}
        slices.append(draw_slice(pid, REDUCE_THREAD + line, f"Reduce_{step.number}_{number}", start, end, facts))
    tids = range(REDUCE_THREAD, REDUCE_THREAD + len(line_ends))
    return [*(event for tid in tids for event in name_row("thread", pid, tid, "Reduce", tid)), *slices]


# Counters


def draw_memory(profile: Profile, pids: Iterator[int]) -> list[RawEvent]:
    """Return the memory of each rank as a counter."""
    events: list[RawEvent] = []
    for rank in sorted({point.rank for point in profile.memory}):
        pid = next(pids)
        events += name_row("process", pid, 0, f"Memory, rank {rank}", MEMORY_POSITION + rank)
        for point in profile.memory:
            if point.rank == rank:
                events.append(draw_counter(pid, "allocated MiB", point.time_us, point.allocated / 2**20))
                if point.reserved is not None:
                    events.append(draw_counter(pid, "reserved MiB", point.time_us, point.reserved / 2**20))
    return events


def draw_system(profile: Profile, pids: Iterator[int]) -> list[RawEvent]:
    if not profile.samples:
        return []
    pid = next(pids)
    figures = [(sample.time_us, name, value) for sample in profile.samples for name, value in sample.values.items()]
    return [
        *name_row("process", pid, 0, "System", SYSTEM_POSITION),
        *(draw_counter(pid, name, time, value) for time, name, value in figures),
    ]


def draw_counter(pid: int, name: str, time_us: float, value: float) -> RawEvent:
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": time_us, "args": {"value": value}}


# Recorded events


def is_drawable(event: RawEvent) -> bool:
    """Return True if an event has a process, finite times, and a duration if its kind needs one."""
    if "ph" not in event or "pid" not in event:
        return False
    times = [event.get(name) for name in ("ts", "dur") if name in event]
    if not all(isinstance(time, int | float) and math.isfinite(time) for time in times):
        return False
    return event["ph"] == "M" or ("ts" in event and event.get("dur", 0) >= 0 and (event["ph"] != "X" or "dur" in event))


def find_unpaired_slices(events: Sequence[RawEvent]) -> set[int]:
    """Return the indices of begin events without an end on their thread, and of end events without a begin."""
    opened: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    unpaired: set[int] = set()
    order = sorted((n for n, event in enumerate(events) if event["ph"] in "BE"), key=lambda n: float(events[n]["ts"]))
    for number in order:
        stack = opened[events[number]["pid"], events[number]["tid"]]
        if events[number]["ph"] == "B":
            stack.append(number)
        elif stack:
            stack.pop()
        else:
            unpaired.add(number)
    return unpaired.union(*opened.values())


def find_unpaired_flows(events: Sequence[RawEvent]) -> set[int]:
    """Return the indices of events of flows without a start or an end."""
    groups: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        if event["ph"] in FLOWS:
            groups[event.get("cat"), event.get("id")].append(number)
    complete = {key for key, group in groups.items() if {"s", "f"} <= {events[n]["ph"] for n in group}}
    return {number for key, group in groups.items() if key not in complete for number in group}


# The file


def write_trace(profile: Profile, folder: Path, events: Sequence[RawEvent] = ()) -> tuple[Path, str]:
    """Write the trace; return its path, and a warning if the trace may be too large for some viewers, else "".

    `events` are the recorded events; `build_trace` draws further events from the profile.
    """
    trace = build_trace(profile, events)
    is_large = any(size > PACK_FROM_BYTES for size in itertools.accumulate(map(len, encode_trace(trace))))
    path, stale = folder / PLAIN_TRACE, folder / PACKED_TRACE
    if is_large:
        path, stale = stale, path
    size = 0  # of the unpacked text
    with replace_file(path, durable=False) as file:
        output = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, mtime=0) if is_large else file
        for piece in encode_trace(trace):
            output.write(piece)
            size += len(piece)
        if is_large:
            output.close()
    stale.unlink(missing_ok=True)
    if size <= WARN_FROM_BYTES:
        return path, ""
    return path, (
        f"{path.name} has {size / 1e6:,.0f} MB when unpacked: chrome://tracing fails from about 500 MB, Perfetto from "
        "about 2 GB. Record fewer steps for a smaller trace."
    )


def encode_trace(trace: dict[str, Any]) -> Iterator[bytes]:
    """Yield the JSON text, with one event per line."""
    head = {name: value for name, value in trace.items() if name != "traceEvents"}
    yield json.dumps(head, allow_nan=False)[:-1].encode() + b', "traceEvents": [\n'
    for number, event in enumerate(trace["traceEvents"]):
        yield (b",\n" if number else b"") + encode_event(event)
    yield b"\n]}\n"


def encode_event(event: RawEvent) -> bytes:
    """Return an event as JSON; NaN and infinity become null."""
    try:
        return json.dumps(event, allow_nan=False, separators=(",", ":"), default=str).encode()
    except ValueError:
        return json.dumps(finite_or_null(event), allow_nan=False, separators=(",", ":"), default=str).encode()


def read_events(folder: Path) -> list[RawEvent]:
    """Return the recorded events of a trace of `write_trace`, without the events that `build_trace` drew."""
    path = next((folder / name for name in (PACKED_TRACE, PLAIN_TRACE) if (folder / name).is_file()), None)
    if path is None:
        return []
    try:
        content = path.read_bytes()
        trace = json.loads(gzip.decompress(content) if path.name == PACKED_TRACE else content)
        drawn = set(trace["otherData"][DRAWN_PIDS])
        return [event for event in trace["traceEvents"] if event["pid"] not in drawn]
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadData(f"{path} is damaged: {type(error).__name__}, {error}.", "Profile that rank again.") from None
