"""Output of msprof: PROF_*/mindstudio_profiler_output, or device_*/summary and timeline of older releases.

    step_trace_*.csv     the six time points of each iteration; step_trace_*.json or msprof_*.json where there is no csv
    op_summary_*.csv     every task of the device: operators by node, kernels by type, collectives
    op_statistic_*.csv   kernels, where there is no op_summary
    memory_record_*.csv  memory over time; operator_memory_*.csv: who held it at the peak
    nic_*.csv, roce_*.csv  samples of the network

Other CSV files become tables of the report, except those in NO_TABLES.

The number of the device stands as the rank, which msprof does not know. Iteration ID counts executions of a graph, not
steps of the script.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from viaduct.errors import BadData
from viaduct.profiling.ascend_tables import (
    TaskTable,
    find_peak,
    read_memory_owners,
    read_memory_record,
    read_statistics,
)
from viaduct.profiling.csv_files import CsvRow, read_rows, read_table
from viaduct.profiling.json_events import EventFile
from viaduct.profiling.merge import merge_profiles, start_read_times_at_zero
from viaduct.profiling.record import Collective, Facts, Profile, Sample, Step
from viaduct.profiling.step_split import STEP_TRACE_TABLE, split_steps
from viaduct.profiling.trace_steps import add_collectives

LAYOUT = (
    "output of msprof (PROF_*/mindstudio_profiler_output, or device_*/summary: step_trace_*.csv, op_summary_*.csv …)"
)
TRIED_AFTER: tuple[str, ...] = ("viaduct_folder", "torch_npu")
OUTPUTS = ("mindstudio_profiler_output", "summary", "timeline")
FILE_NAME = re.compile(r"(?P<kind>[a-z][a-z_0-9]*?)(_slice_\d+)?(_\d+)*\.(?P<ending>csv|json)")
MAIN_KINDS = ("op_summary", "step_trace", "op_statistic")  # files by which the layout is recognised
NO_TABLES = ("step_trace", "op_summary", "memory_record", "operator_memory", "task_time", "fusion_op")
SAMPLED = ("nic", "roce")  # kinds of files with samples of the network
# Names of the events that draw a step.
SLICE = re.compile(r"(Iteration|FP_BP Time|Iteration Refresh) (\d+)")
Files = dict[str, list[Path]]  # kind, such as "op_summary" for CSV and "msprof.json" for JSON -> files


def recognise(path: Path) -> bool:
    """Return True for a PROF folder, its output folder, and a folder of several PROF folders."""
    return path.is_dir() and any(not files.keys().isdisjoint(MAIN_KINDS) for files in find_outputs(path).values())


def find_outputs(path: Path) -> dict[Path, Files]:
    """Return the files of each PROF folder, by kind."""
    homes = [path] if path.name.startswith("PROF_") else sorted(path.glob("PROF_*")) or [path]
    by_home = {}
    for home in homes:
        folders = [home] if home.name in OUTPUTS else []
        folders += [home / OUTPUTS[0], *sorted(home.glob("device_*/summary")), *sorted(home.glob("device_*/timeline"))]
        folders += [home / name for name in OUTPUTS[1:]]
        files: Files = defaultdict(list)
        has_files_itself = any(any(home.glob(f"{kind}_*.csv")) for kind in MAIN_KINDS)  # as after copying them away
        for folder in [home] if has_files_itself else folders:
            for file in sorted(folder.glob("*.*")):
                match = FILE_NAME.fullmatch(file.name)
                if match and file.is_file():
                    key = match["kind"] if match["ending"] == "csv" else f"{match['kind']}.json"
                    files[key].append(file)
        if files:
            by_home[home] = dict(files)
    return by_home


def read(path: Path) -> Profile:
    """Return the profile of all devices under a path."""
    profiles: dict[int, Profile] = {}
    notes = []
    for home, files in find_outputs(path).items():
        for profile in read_home(path, files):
            rank = profile.steps[0].rank if profile.steps else find_device(files)
            if rank in profiles:  # an older recording, in a folder with an earlier name
                notes.append(f"{home.name} holds device {rank} once more; the last by name was read.")
            profiles[rank] = profile
    if not profiles:
        raise BadData(f"{str(path)!r} holds files of msprof, but none of them has steps or operators.")
    ranks = sorted(profiles)
    merged = profiles[ranks[0]]
    if len(ranks) > 1:
        merged = merge_profiles([profiles[rank] for rank in ranks], [f"device {rank}" for rank in ranks])
    return replace(merged, facts=replace(merged.facts, notes=(*merged.facts.notes, *notes)))


def find_device(files: Files) -> int:
    """Return the device that a folder or a file names; 0 where none does."""
    for file in (file for group in files.values() for file in group):
        match = re.search(r"device_(\d+)", str(file))
        if match:
            return int(match[1])
    return 0


@dataclass
class Source:
    """One PROF folder while it is read."""

    path: Path
    files: Files
    notes: list[str] = field(default_factory=list)
    phases_found_by: list[str] = field(default_factory=list)
    phases_measured: bool = True


def read_home(path: Path, files: Files) -> list[Profile]:
    """Return a profile for each device of one PROF folder."""
    source = Source(path, files)
    by_device = read_steps(source)
    devices = sorted(by_device) or [find_device(files)]
    tasks = read_tasks(source, devices)
    return [build_profile(source, device, by_device.get(device, []), tasks[device]) for device in devices]


# Steps


def read_steps(source: Source) -> dict[int, list[Step]]:
    """Return the steps of each device: from the CSV, else from the timeline."""
    rows: dict[tuple[int, str], list[CsvRow]] = defaultdict(list)
    for file in source.files.get("step_trace", []):
        for row in read_rows(file, source.notes):
            device = row.number("Device_id", "Device ID")
            number = find_device({"": [file]}) if device is None else int(device)
            rows[number, row.text("Model ID")].append(row)
    steps = choose_model({key: list_steps(group, key[0], source) for key, group in rows.items()}, source)
    if steps:
        source.phases_found_by.append("FP start, BP end and iteration end are those of msprof's step_trace.")
    else:
        steps = read_timeline(source)
    if not steps:
        source.notes.append(
            "There is no step trace: msprof writes none where operators are executed one by one (PyTorch)."
        )
    return steps


def choose_model(by_model: dict[tuple[int, str], list[Step]], source: Source) -> dict[int, list[Step]]:
    """Return the steps of the graph that took most time on each device; a note names the other graphs."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    for (device, model), steps in by_model.items():
        if steps:
            times[device][model] = sum(step.iteration_us for step in steps)
    chosen: dict[int, list[Step]] = {}
    for device, by_time in times.items():
        longest, *others = sorted(by_time, key=lambda model: -by_time[model])
        chosen[device] = by_model[device, longest]
        if others:
            names = ", ".join(others)
            source.notes.append(
                f"Device {device} ran several graphs; the steps are those of model {longest}, not of {names}."
            )
    return chosen


def list_steps(rows: Sequence[CsvRow], device: int, source: Source) -> list[Step]:
    """Return the steps of one device and graph."""
    steps: list[Step] = []
    damaged = 0
    for row in sorted(rows, key=lambda row: row.number("Iteration ID") or 0):
        step = make_step(row, device, steps[-1] if steps else None, source)
        if step is None:
            damaged += 1
        else:
            steps.append(step)
    if damaged:
        source.notes.append(f"step_trace: {damaged:,} iterations of device {device} have no end and were left out.")
    return steps


def make_step(row: CsvRow, device: int, before: Step | None, source: Source) -> Step | None:
    """Return one step; None if its end or its length is not known.

    Where FP start or BP end is N/A, the whole iteration stands as forward + backward.
    """
    number, end, duration = row.number("Iteration ID"), row.time_us("Iteration End"), row.time_us("Iteration Time")
    if number is None or end is None:
        return None
    tail = row.time_us("Data Aug Bound")
    follows = before is not None and before.number == int(number) - 1
    previous = before.end_us if before is not None and follows else None
    forward, backward = row.time_us("FP Start"), row.time_us("BP End")
    if previous is None and tail is not None and forward is not None and tail > 0:
        previous = forward - tail
    if forward is None or backward is None:
        if duration is None and previous is None:
            return None
        source.phases_measured = False
        begin = previous if duration is None else end - duration
        forward, backward = begin if begin is not None else end, end
    if not forward <= backward <= end:
        return None
    reduces = zip(row.times_us("Reduce Start"), row.times_us("Reduce Duration"), strict=False)
    collectives = [
        Collective("all-reduce", start, time) for start, time in reduces if start is not None and time is not None
    ]
    wait = row.time_us("GetNext Time")
    return Step(device, int(number), forward, backward, end, previous, wait, tuple(collectives))


def read_timeline(source: Source) -> dict[int, list[Step]]:
    """Return the steps that step_trace_*.json or the process "Step Trace" of msprof_*.json draw."""
    by_device: dict[int, list[Step]] = {}
    for kind in ("step_trace.json", "msprof.json"):
        for file in source.files.get(kind, []):
            slices: dict[int, dict[str, tuple[float, float]]] = defaultdict(dict)
            for event in EventFile(file, source.notes):
                match = SLICE.fullmatch(str(event.get("name", "")))
                if match and event.get("ph") == "X" and "ts" in event and "dur" in event:
                    slices[int(match[2])].setdefault(match[1], (event["ts"], event["ts"] + event["dur"]))
            steps = make_steps(slices, find_device({"": [file]}))
            if steps:
                by_device[steps[0].rank] = steps
        if by_device:
            source.phases_found_by.append(f"The time points are those of the slices in {kind.replace('.', '_*.')}.")
            break
    return by_device


def make_steps(slices: dict[int, dict[str, tuple[float, float]]], device: int) -> list[Step]:
    """Return steps from the slices FP_BP Time N and Iteration N."""
    steps: list[Step] = []
    for number, parts in sorted(slices.items()):
        if "FP_BP Time" not in parts:
            continue
        forward, backward = parts["FP_BP Time"]
        end = max(parts.get("Iteration Refresh", parts.get("Iteration", (0.0, backward)))[1], backward)
        before = steps[-1] if steps and steps[-1].number == number - 1 else None
        steps.append(Step(device, number, forward, backward, end, before.end_us if before else None))
    return steps


# Tasks, tables and samples


def read_tasks(source: Source, devices: Sequence[int]) -> dict[int, TaskTable]:
    """Return the tasks of each device; those of a file without Device_id belong to its folder's device."""
    tasks = {device: TaskTable() for device in devices}
    for file in source.files.get("op_summary", []):
        for row in read_rows(file, source.notes):
            device = row.number("Device_id", "Device ID")
            number = find_device({"": [file]}) if device is None else int(device)
            tasks.setdefault(number, TaskTable()).add(row)
    return tasks


def build_profile(source: Source, device: int, steps: list[Step], tasks: TaskTable) -> Profile:
    """Return the profile of one device."""
    count = len(steps) or len(tasks.steps) or 1
    notes = list(source.notes)
    if not steps and not tasks.steps:
        notes.append("The number of steps is not known: figures of operators are those of the whole recording.")
    if tasks.collectives or tasks.computing:
        steps = place_collectives(steps, tasks)
    kernels = tasks.list_kernels(count, device)
    if not kernels:
        for file in source.files.get("op_statistic", []):
            kernels += read_statistics(file, count, device, notes, device)
    memory = [
        point for file in source.files.get("memory_record", []) for point in read_memory_record(file, device, notes)
    ]
    files = source.files.get("operator_memory", []) if memory else []
    owners = [owner for file in files for owner in read_memory_owners(file, device, find_peak(memory), notes)]
    if tasks.nodes:
        notes.append(
            "Operators have the time of the device alone: their time on the host is not in these files and stands as 0."
        )
    phases = "Iteration ID counts executions of a graph; a loop on the device counts as one."
    if not source.phases_measured:
        phases = "FP start or BP end is N/A in the step trace: the whole iteration stands as forward + backward."
    facts = Facts(
        str(source.path),
        "msprof",
        device="npu",
        timed_steps=len(steps),
        recorded_steps=count if tasks.rows else 0,
        phases_found_by=(*source.phases_found_by, *([phases] if steps else [])),
        phases_measured=source.phases_measured,
    )
    tables, samples = read_tables(source, notes), read_samples(source, notes)
    if steps and tasks.computing:
        tables[STEP_TRACE_TABLE] = split_steps(
            steps, tasks.computing, [row for step in steps for row in step.collectives]
        )
    facts = replace(facts, notes=tuple(dict.fromkeys(notes)))
    profile = Profile(facts, steps, tasks.list_nodes(count, device), kernels, memory, owners, samples, tables=tables)
    return start_read_times_at_zero(profile)


def place_collectives(steps: list[Step], tasks: TaskTable) -> list[Step]:
    """Return the steps with exposed times; the collectives of op_summary where the step trace has none."""
    if any(step.collectives for step in steps):
        collectives = [row for step in steps for row in step.collectives]
        return add_collectives([replace(step, collectives=()) for step in steps], collectives, tasks.computing or None)
    return add_collectives(steps, tasks.collectives, tasks.computing or None)


def read_tables(source: Source, notes: list[str]) -> dict[str, Any]:
    """Return the CSV files that are not in NO_TABLES, as tables for the report."""
    tables = {}
    for kind, files in sorted(source.files.items()):
        if kind.endswith(".json") or kind in NO_TABLES:
            continue
        for number, file in enumerate(files):
            table = read_table(file, notes)
            if table is not None:
                tables[kind if len(files) == 1 else f"{kind} {number + 1}"] = table
    return tables


def read_samples(source: Source, notes: list[str]) -> list[Sample]:
    """Return the rates and percentages of the network's files as samples, in order of time."""
    samples = []
    for kind in SAMPLED:
        for row in (row for file in source.files.get(kind, []) for row in read_rows(file, notes)):
            time = row.time_us("Timestamp")
            figures = {f"{kind} {name}": row.number(name) for name in row.columns if "/s" in name or "%" in name}
            known = {name: value for name, value in figures.items() if value is not None}
            if time is not None and known:
                samples.append(Sample(time, known))
    return sorted(samples, key=lambda sample: sample.time_us)
