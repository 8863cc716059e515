"""Output of msprof: PROF_*/mindstudio_profiler_output, or device_*/summary and timeline of older releases.

    step_trace_*.csv     steps; if it gives none, they come from step_trace_*.json or else from msprof_*.json
    op_summary_*.csv     every task of the device: operators by node, kernels by type, collectives
    op_statistic_*.csv   kernels, if there is no op_summary
    memory_record_*.csv  memory over time; operator_memory_*.csv: its owners at the peak
    nic_*.csv, roce_*.csv  samples of the network

CSV files of all kinds except NO_TABLES also become tables of the report.

msprof does not know ranks, so the number of the device is used. In mindstudio_profiler_output one file has the rows of
all devices, with a column Device_id (`host` for the host's rows); older releases write separate files for each device,
without that column. Iteration ID counts executions of a graph, which may differ from steps of the script.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from viaduct.profiling.ascend_tables import (
    TaskTable,
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
COMBINED_FOLDER = "mindstudio_profiler_output"  # its files have the rows of all devices
RESULT_FOLDERS = (COMBINED_FOLDER, "summary", "timeline")
FILE_NAME = re.compile(r"(?P<kind>[a-z][a-z_0-9]*?)(_slice_\d+)?(_\d+)*\.(?P<ending>csv|json)")
MAIN_KINDS = ("op_summary", "step_trace", "op_statistic")  # files by which the layout is recognised
# Kinds of CSV files that do not become tables of the report.
NO_TABLES = ("step_trace", "op_summary", "memory_record", "operator_memory", "task_time", "fusion_op")
SAMPLED = ("nic", "roce")  # kinds of files with samples of the network
SLICE = re.compile(r"(Iteration|FP_BP Time|Iteration Refresh) (\d+)")  # name of an event that draws a part of a step
DEVICE_FOLDER = re.compile(r"device_(\d+)")
DEVICE_LABEL = re.compile(r"NPU (\d+)")  # label of a process in a timeline
MODEL_LABEL = re.compile(r"Model ID:\s*(\d+)")  # label of a thread in a timeline
EXPORT = re.compile(r"(?P<name>.+)_(?P<time>\d+)(?P<ending>\.\w+)")  # file name with the time of the export
DEVICE_COLUMNS = ("Device_id", "Device ID")
Files = dict[str, list[Path]]  # kind of file, such as "op_summary" (a CSV file) or "msprof.json" -> files
Slices = dict[int, dict[str, tuple[float, float]]]  # iteration -> name of a slice -> begin and end


def recognise(path: Path) -> bool:
    """Return True for a PROF folder, its output folder, and a folder of several PROF folders."""
    return path.is_dir() and any(not files.keys().isdisjoint(MAIN_KINDS) for files in find_outputs(path).values())


def find_outputs(path: Path) -> dict[Path, Files]:
    """Return the files of each PROF folder by kind; without PROF folders, the files of `path` itself."""
    prof_folders = [path] if path.name.startswith("PROF_") else sorted(path.glob("PROF_*")) or [path]
    by_prof_folder = {}
    for prof_folder in prof_folders:
        folders = [prof_folder] if prof_folder.name in RESULT_FOLDERS else []
        folders += [prof_folder / name for name in RESULT_FOLDERS]
        folders += [*sorted(prof_folder.glob("device_*/summary")), *sorted(prof_folder.glob("device_*/timeline"))]
        files: Files = defaultdict(list)
        has_files_itself = any(any(prof_folder.glob(f"{kind}_*.csv")) for kind in MAIN_KINDS)
        if has_files_itself:  # it is a result folder, or files were copied into it
            folders = [prof_folder]
        for folder in folders:
            for file in list_newest(folder) if folder.name == COMBINED_FOLDER else sorted(folder.glob("*.*")):
                match = FILE_NAME.fullmatch(file.name)
                if match and file.is_file():
                    key = match["kind"] if match["ending"] == "csv" else f"{match['kind']}.json"
                    files[key].append(file)
        if files:
            by_prof_folder[prof_folder] = {kind: prefer_combined(same) for kind, same in files.items()}
    return by_prof_folder


def prefer_combined(files: list[Path]) -> list[Path]:
    """Return the files in mindstudio_profiler_output, which have all devices, or all files if none is there."""
    return [file for file in files if file.parent.name == COMBINED_FOLDER] or files


def list_newest(folder: Path) -> list[Path]:
    """Return the files of an output folder; of files that differ only in the time of their export, the newest."""
    matches = {file: EXPORT.fullmatch(file.name) for file in folder.glob("*.*")}
    newest: dict[Any, Path] = {}
    for file, match in sorted(matches.items(), key=lambda item: int(item[1]["time"]) if item[1] else 0):
        key = (match["name"], match["ending"]) if match else file.name
        newest[key] = file  # replaces an earlier export
    return sorted(newest.values())


def read(path: Path) -> Profile:
    """Return the profile of all devices, each as a rank; of a device in several PROF folders, the last."""
    profiles: dict[int, Profile] = {}
    prof_folders: dict[int, Path] = {}
    notes = []
    for prof_folder, files in find_outputs(path).items():
        for device, profile in read_prof_folder(prof_folder, files).items():
            if device in profiles:  # a later recording, or another server's device
                earlier = prof_folders[device].name
                notes.append(
                    f"{earlier} and {prof_folder.name} both have device {device}; its data in {earlier} were left out. "
                    "Read folders of several servers one by one."
                )
            profiles[device], prof_folders[device] = profile, prof_folder
    devices = sorted(profiles)
    merged = profiles[devices[0]]
    if len(devices) > 1:
        merged = merge_profiles([profiles[device] for device in devices], [f"device {device}" for device in devices])
    return replace(merged, facts=replace(merged.facts, notes=(*merged.facts.notes, *notes)))


def find_folder_device(file: Path) -> int | None:
    """Return N if a file is in a folder device_N, else None; folders that contain the PROF folder do not count."""
    for part in reversed(file.parts[:-1]):
        match = DEVICE_FOLDER.fullmatch(part)
        if match:
            return int(match[1])
        if part.startswith("PROF_"):
            break
    return None


def list_device_folders(prof_folder: Path) -> list[int]:
    """Return the devices with a folder in a PROF folder; `prof_folder` may also be its output folder."""
    parent = prof_folder.parent if prof_folder.name in RESULT_FOLDERS else prof_folder
    matches = [DEVICE_FOLDER.fullmatch(folder.name) for folder in parent.glob("device_*") if folder.is_dir()]
    return sorted(int(match[1]) for match in matches if match)


@dataclass
class Source:
    """One PROF folder while it is read."""

    path: Path
    files: Files
    notes: list[str] = field(default_factory=list)
    phases_found_by: list[str] = field(default_factory=list)
    phaseless_steps: set[Step] = field(default_factory=set)  # steps without FP start or BP end
    file_devices: dict[Path, int] = field(default_factory=dict)

    def find_file_device(self, file: Path) -> int:
        """Return the device of a file, from its folder or else `guess_device`."""
        if file not in self.file_devices:
            device = find_folder_device(file)
            self.file_devices[file] = self.guess_device(file) if device is None else device
        return self.file_devices[file]

    def guess_device(self, file: Path) -> int:
        """Return the first device with a folder; 0 without folders. Add a note if there are several."""
        folders = list_device_folders(self.path)
        if len(folders) > 1:
            self.notes.append(
                f"{file.name} does not name its device, one of {', '.join(map(str, folders))}; it counts as device "
                f"{folders[0]}."
            )
        return folders[0] if folders else 0

    def find_row_device(self, row: CsvRow, file: Path) -> int | None:
        """Return the device of a row; None for a row of the host."""
        device = row.number(*DEVICE_COLUMNS)
        if device is not None:
            return int(device)
        return None if row.text(*DEVICE_COLUMNS).lower() == "host" else self.find_file_device(file)

    def iterate_rows(self, kind: str) -> Iterator[tuple[int, CsvRow]]:
        """Yield the device and the row for each row of a device in the files of a kind, without rows of the host."""
        for file in self.files.get(kind, []):
            for row in read_rows(file, self.notes):
                device = self.find_row_device(row, file)
                if device is not None:
                    yield device, row

    def select_rows(self, kind: str, device: int) -> Iterator[CsvRow]:
        """Return the rows of one device in the files of a kind."""
        return (row for row_device, row in self.iterate_rows(kind) if row_device == device)


def read_prof_folder(path: Path, files: Files) -> dict[int, Profile]:
    """Return a profile for each device in the files of one PROF folder, by number."""
    source = Source(path, files)
    folders = {file.parent for group in files.values() for file in group if file.parent.name == COMBINED_FOLDER}
    older = sorted(file.name for folder in folders for file in set(folder.glob("*.*")) - set(list_newest(folder)))
    if older:
        source.notes.append(f"Older exports of the same files were not read: {', '.join(older)}.")
    by_device = read_steps(source)
    tasks = read_tasks(source)
    devices = {*by_device, *tasks}
    devices |= {device for kind in ("op_statistic", "memory_record") for device, _ in source.iterate_rows(kind)}
    first_device = min(devices, default=None)
    if first_device is None:
        first_device = source.find_file_device(next(file for group in files.values() for file in group))
    return {
        device: build_profile(
            source, device, by_device.get(device, []), tasks.get(device, TaskTable()), is_first=device == first_device
        )
        for device in sorted({first_device, *devices})
    }


# Steps


def read_steps(source: Source) -> dict[int, list[Step]]:
    """Return the steps of each device: from the CSV, or from the timeline if the CSV gives none."""
    rows: dict[tuple[int, str], list[CsvRow]] = defaultdict(list)
    for device, row in source.iterate_rows("step_trace"):
        rows[device, row.text("Model ID")].append(row)
    steps = choose_model({key: list_steps(group, key[0], source) for key, group in rows.items()}, source)
    if steps:
        source.phases_found_by.append("The time points come from msprof's step_trace.")
    else:
        steps = read_timeline(source)
    if not steps:
        source.notes.append("No steps were found: msprof traces none if operators run one by one (PyTorch).")
    return steps


def choose_model(by_model: dict[tuple[int, str], list[Step]], source: Source) -> dict[int, list[Step]]:
    """Return the steps of the graph ("model") with the most time on each device; a note names the other graphs."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    for (device, model), steps in by_model.items():
        if steps:
            times[device][model] = sum(step.iteration_us for step in steps)
    chosen: dict[int, list[Step]] = {}
    for device, by_time in times.items():
        longest, *other_models = sorted(by_time, key=lambda model: -by_time[model])
        chosen[device] = by_model[device, longest]
        if other_models:
            others = ", ".join(other_models)
            source.notes.append(
                f"Device {device} ran several graphs; the steps are executions of model {longest}, not of {others}."
            )
    return chosen


def list_steps(rows: Sequence[CsvRow], device: int, source: Source) -> list[Step]:
    steps: list[Step] = []
    left_out = 0
    for row in sorted(rows, key=lambda row: row.number("Iteration ID") or 0):
        step = make_step(row, device, steps[-1] if steps else None, source)
        if step is None:
            left_out += 1
        else:
            steps.append(step)
    if left_out:
        reasons = "a number, end or length is missing, or time points are out of order"
        source.notes.append(f"step_trace: {left_out:,} iterations of device {device} were left out: {reasons}.")
    return steps


def make_step(row: CsvRow, device: int, previous: Step | None, source: Source) -> Step | None:
    """Return one step; None if its number, end or length is not known, or its time points are out of order.

    If FP start or BP end is N/A, the complete iteration counts as forward + backward.
    """
    number, end, duration = row.number("Iteration ID"), row.time_us("Iteration End"), row.time_us("Iteration Time")
    if number is None or end is None:
        return None
    previous_end = previous.end_us if previous is not None and previous.number == int(number) - 1 else None
    forward_start, backward_end = row.time_us("FP Start"), row.time_us("BP End")
    data_time = row.time_us("Data Aug Bound")  # between the end of the previous iteration and FP start
    if previous_end is None and data_time is not None and forward_start is not None and data_time > 0:
        previous_end = forward_start - data_time  # of a step whose previous one was not recorded
    has_phases = None not in (forward_start, backward_end)
    if forward_start is None or backward_end is None:
        forward_start, backward_end = previous_end if duration is None else end - duration, end
    if forward_start is None or not forward_start <= backward_end <= end:
        return None
    reduces = zip(row.times_us("Reduce Start"), row.times_us("Reduce Duration"), strict=False)
    collectives = [
        Collective("all-reduce", start, time) for start, time in reduces if start is not None and time is not None
    ]
    wait = row.time_us("GetNext Time")
    step = Step(device, int(number), forward_start, backward_end, end, previous_end, wait, tuple(collectives))
    if not has_phases:
        source.phaseless_steps.add(step)
    return step


def read_timeline(source: Source) -> dict[int, list[Step]]:
    """Return the steps in step_trace_*.json, else those in msprof_*.json; {} if neither has steps."""
    for kind in ("step_trace.json", "msprof.json"):
        slices: dict[tuple[int, str], Slices] = defaultdict(lambda: defaultdict(dict))
        for file in source.files.get(kind, []):
            read_slices(file, source, slices)
        steps = choose_model({key: make_steps(group, key[0]) for key, group in slices.items()}, source)
        if steps:
            source.phases_found_by.append(f"The time points come from the slices in {kind.replace('.', '_*.')}.")
            return steps
    return {}


def read_slices(file: Path, source: Source, slices: dict[tuple[int, str], Slices]) -> None:
    """Add the slices of the step trace in one file, by device and graph.

    The label of a process names its device, the label of a thread its graph; labels may come after the slices.
    """
    by_thread: dict[tuple[Any, Any], Slices] = defaultdict(lambda: defaultdict(dict))
    devices: dict[Any, int] = {}
    models: dict[tuple[Any, Any], str] = {}
    repeated = 0
    for event in EventFile(file, source.notes):
        thread = (event.get("pid"), event.get("tid"))
        if event.get("ph") == "M":
            device_label = DEVICE_LABEL.fullmatch(str(event["args"].get("labels", "")))
            model_label = MODEL_LABEL.search(str(event["args"].get("name", "")))
            if event.get("name") == "process_labels" and device_label:
                devices[thread[0]] = int(device_label[1])
            if event.get("name") == "thread_name" and model_label:
                models[thread] = model_label[1]
        match = SLICE.fullmatch(str(event.get("name", "")))
        if match and event.get("ph") == "X" and "ts" in event and "dur" in event:
            times = (event["ts"], event["ts"] + event["dur"])
            first_times = by_thread[thread][int(match[2])].setdefault(match[1], times)
            repeated += int(first_times != times)
    if repeated:
        source.notes.append(
            f"{file.name}: {repeated:,} slices occur again with different times, perhaps of several devices in one "
            "process; the first of each was read."
        )
    for (process, thread_id), by_number in by_thread.items():
        device = devices[process] if process in devices else source.find_file_device(file)
        group = slices[device, models.get((process, thread_id), f"of thread {thread_id}")]
        for number, parts in by_number.items():
            for name, times in parts.items():
                group[number].setdefault(name, times)


def make_steps(slices: Slices, device: int) -> list[Step]:
    """Return a step for each slice FP_BP Time N; Iteration Refresh N, else Iteration N, gives its end."""
    steps: list[Step] = []
    for number, parts in sorted(slices.items()):
        if "FP_BP Time" not in parts:
            continue
        forward_start, backward_end = parts["FP_BP Time"]
        _, end = parts.get("Iteration Refresh") or parts.get("Iteration") or (0.0, backward_end)
        previous_end = steps[-1].end_us if steps and steps[-1].number == number - 1 else None
        steps.append(Step(device, number, forward_start, backward_end, max(end, backward_end), previous_end))
    return steps


# Tasks, tables and samples


def read_tasks(source: Source) -> dict[int, TaskTable]:
    """Return the tasks in op_summary by device, for devices that have some."""
    tasks: dict[int, TaskTable] = defaultdict(TaskTable)
    for device, row in source.iterate_rows("op_summary"):
        tasks[device].add(row)
    return {device: table for device, table in tasks.items() if table.rows}


def build_profile(source: Source, device: int, steps: list[Step], tasks: TaskTable, is_first: bool) -> Profile:
    """Return the profile of one device; the first one also has the host's tables."""
    notes = list(source.notes)
    count = tasks.count_steps(steps, notes)
    found_by = list(source.phases_found_by) if steps else []
    phaseless = len(source.phaseless_steps.intersection(steps))
    if phaseless:
        found_by.append(
            f"{phaseless:,} steps have FP start or BP end N/A: they count as forward + backward completely."
        )
    if steps:
        notes.append("Iteration ID counts executions of a graph; a loop on the device counts as one.")
    if tasks.collectives or tasks.computing:
        steps = assign_collectives(steps, tasks)
    kernels = tasks.list_kernels(count, device)
    if not kernels:
        kernels = read_statistics(source.select_rows("op_statistic", device), count, device)
    memory = read_memory_record(source.select_rows("memory_record", device), device)
    owners = read_memory_owners(source.select_rows("operator_memory", device), device, memory)
    if tasks.nodes:
        notes.append(
            "Operators have only the time of the device: their time on the host is not in these files and is 0."
        )
    tables, samples = read_tables(source, device, is_first), read_samples(source, device)
    if steps and tasks.computing:
        tables[STEP_TRACE_TABLE] = split_steps(
            steps, tasks.computing, [row for step in steps for row in step.collectives]
        )
    facts = Facts(
        str(source.path),
        "msprof",
        device="npu",
        timed_steps=len(steps),
        recorded_steps=count if tasks.rows and (steps or tasks.steps) else 0,
        phases_found_by=tuple(found_by),
        notes=tuple(dict.fromkeys([*notes, *source.notes])),
        phases_measured=not phaseless,
    )
    profile = Profile(facts, steps, tasks.list_nodes(count, device), kernels, memory, owners, samples, tables=tables)
    return start_read_times_at_zero(profile)


def assign_collectives(steps: list[Step], tasks: TaskTable) -> list[Step]:
    """Return the steps with collectives and exposed times; op_summary is used if the step trace has no collectives."""
    if any(step.collectives for step in steps):
        collectives = [row for step in steps for row in step.collectives]
        return add_collectives([replace(step, collectives=()) for step in steps], collectives, tasks.computing or None)
    return add_collectives(steps, tasks.collectives, tasks.computing or None)


def read_tables(source: Source, device: int, is_first: bool) -> dict[str, Any]:
    """Return the CSV files except NO_TABLES, each with the rows of one device; the first device has the host's, too."""
    tables = {}
    for kind, files in sorted(source.files.items()):
        if kind.endswith(".json") or kind in NO_TABLES:
            continue
        file_tables = [
            read_table(file, source.notes, keep=partial(belongs_to, source, file, device, is_first)) for file in files
        ]
        nonempty = [table for table in file_tables if table is not None]
        for number, table in enumerate(nonempty, 1):
            tables[kind if len(nonempty) == 1 else f"{kind} {number}"] = table
    return tables


def belongs_to(source: Source, file: Path, device: int, is_first: bool, row: CsvRow) -> bool:
    """Return True for a row of the device, and for a row of the host if the device is the first."""
    row_device = source.find_row_device(row, file)
    return is_first if row_device is None else row_device == device


def read_samples(source: Source, device: int) -> list[Sample]:
    """Return the rates (/s) and percentages in the network's files as samples, in order of time."""
    samples = []
    for kind in SAMPLED:
        for row in source.select_rows(kind, device):
            time = row.time_us("Timestamp")
            figures = {f"{kind} {name}": row.number(name) for name in row.columns if "/s" in name or "%" in name}
            known_figures = {name: value for name, value in figures.items() if value is not None}
            if time is not None and known_figures:
                samples.append(Sample(time, known_figures))
    return sorted(samples, key=lambda sample: sample.time_us)
