"""Output of torch_npu's profiler: {worker}_{time}_ascend_pt/ASCEND_PROFILER_OUTPUT, of one rank or several.

trace_view.json        steps with their phases, as in a trace of torch.profiler
step_trace_time.csv    computing, communication and free time of each step, which give its length without a trace
kernel_details.csv     kernels by type and collectives; op_statistic.csv if it is missing
operator_details.csv   operators of PyTorch with their time on host and device
memory_record.csv      memory over time; operator_memory.csv: the operators that allocated the bytes at the peak
communication.json     collectives with their size; api_statistic.csv and others: tables of the report
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from viaduct.errors import BadData
from viaduct.profiling.ascend_tables import (
    Sum,
    TaskTable,
    clean_shapes,
    read_memory_owners,
    read_memory_record,
    read_statistics,
)
from viaduct.profiling.csv_files import CsvRow, read_rows, read_table
from viaduct.profiling.events import LOADER, OPTIMIZER, RawEvent
from viaduct.profiling.json_events import EventFile, to_number
from viaduct.profiling.merge import merge_profiles, start_read_times_at_zero
from viaduct.profiling.record import Collective, Facts, Operator, Phase, Profile, Step, find_median_iteration
from viaduct.profiling.trace_steps import FoundSteps, Launch, add_collectives, find_steps

LAYOUT = (
    "output of torch_npu's profiler (*_ascend_pt/ASCEND_PROFILER_OUTPUT: step_trace_time.csv, kernel_details.csv …)"
)
TRIED_AFTER: tuple[str, ...] = ("viaduct_folder",)
OUTPUT_FOLDER = "ASCEND_PROFILER_OUTPUT"
# A folder with one of these files is recognised.
FILES = ("step_trace_time.csv", "kernel_details.csv", "operator_details.csv", "op_statistic.csv", "trace_view.json")
# CSV files that become tables of the report.
TABLES = ("step_trace_time", "op_statistic", "api_statistic", "npu_module_mem", "l2_cache", "data_preprocess")
DEVICE_PROCESS = "Ascend Hardware"  # name of the process of kernels in trace_view.json
STACK_LINE = re.compile(r"(?P<file>[^\s;()]+\.py)\((?P<line>\d+)\)")
# Parts of the paths of files that are not the script's.
LIBRARIES = ("site-packages", "dist-packages", "torch/", "torch_npu/", "<frozen")
MAX_JSON_BYTES = 256 << 20
HOST_CATEGORIES = ("cpu_op", "user_annotation", "fwdbwd")  # categories of the host's events in trace_view.json


def recognise(path: Path) -> bool:
    """Return True for an output folder, the folder around it, and a folder of several of those."""
    return path.is_dir() and bool(find_outputs(path))


def find_outputs(path: Path) -> list[Path]:
    if path.name == OUTPUT_FOLDER or any((path / name).is_file() for name in FILES):
        return [path]
    if (path / OUTPUT_FOLDER).is_dir():
        return [path / OUTPUT_FOLDER]
    return sorted(folder / OUTPUT_FOLDER for folder in path.iterdir() if (folder / OUTPUT_FOLDER).is_dir())


def read(path: Path) -> Profile:
    """Return the profile of the rank, or of all ranks, whose output folders are at a path."""
    outputs = find_outputs(path)
    ranks = [find_rank(output) for output in outputs]
    notes = []
    if len(outputs) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        notes.append("The folders do not have distinct ranks: they are numbered in the order of their names.")
        ranks = list(range(len(outputs)))
    profiles = [read_rank(output, rank or 0, path) for output, rank in zip(outputs, ranks, strict=True)]
    merged = profiles[0] if len(profiles) == 1 else merge_profiles(profiles, [folder.parent.name for folder in outputs])
    return replace(merged, facts=replace(merged.facts, notes=(*merged.facts.notes, *notes)))


def find_rank(output: Path) -> int | None:
    """Return the rank in the name of profiler_info_N.json, or in its content; None if neither has it."""
    for file in sorted(output.parent.glob("profiler_info*.json")):
        match = re.fullmatch(r"profiler_info_(\d+)\.json", file.name)
        rank = int(match[1]) if match else read_json(file, []).get("rank_id")
        if isinstance(rank, int) and rank >= 0:
            return rank
    return None


def read_json(file: Path, notes: list[str]) -> dict[str, Any]:
    """Return the object in a JSON file, or {}; a note names a damaged or too large file."""
    try:
        if file.stat().st_size > MAX_JSON_BYTES:
            notes.append(f"{file.name} is larger than {MAX_JSON_BYTES >> 20} MiB and was not read.")
            return {}
        record = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        notes.append(f"{file.name} is damaged and was not read.")
        return {}
    return record if isinstance(record, dict) else {}


@dataclass
class Source:
    """One rank's output folder while it is read."""

    folder: Path
    rank: int
    notes: list[str] = field(default_factory=list)
    phases_found_by: list[str] = field(default_factory=list)
    phases_measured: bool = True
    begins_known: bool = True  # False: only the lengths of steps are known; the steps are drawn in sequence, from 0

    def find_file(self, name: str) -> Path | None:
        """Return a file of the folder; None if it does not exist."""
        return self.folder / name if (self.folder / name).is_file() else None

    def read_csv(self, name: str) -> Iterator[CsvRow]:
        """Return the rows of a file of the folder; no rows if it does not exist."""
        file = self.find_file(name)
        return read_rows(file, self.notes) if file else iter(())


def read_rank(output: Path, rank: int, path: Path) -> Profile:
    """Return the profile of one output folder; `path` is the source that the user named."""
    source = Source(output, rank)
    check_results(source)
    tasks = TaskTable()
    for row in source.read_csv("kernel_details.csv"):
        tasks.add(row)
    steps = read_steps(source)
    count = tasks.count_steps(steps, source.notes)
    collectives = read_communication(source) or tasks.collectives
    steps = add_collectives(steps, collectives, tasks.computing or None)
    memory = read_memory_record(source.read_csv("memory_record.csv"), rank)
    kernels = tasks.list_kernels(count, rank) or read_statistics(source.read_csv("op_statistic.csv"), count, rank)
    profile = Profile(
        build_facts(source, path, steps),
        steps,
        read_operators(source, count),
        kernels,
        memory,
        read_memory_owners(source.read_csv("operator_memory.csv"), rank, memory),
        tables=read_tables(source),
    )
    profile = replace(profile, facts=replace(profile.facts, notes=tuple(dict.fromkeys(source.notes))))
    if source.begins_known:
        return start_read_times_at_zero(profile)
    zero = min((point.time_us for point in memory), default=0.0)  # the steps already begin at 0
    return replace(profile, memory=[replace(point, time_us=point.time_us - zero) for point in memory])


def check_results(source: Source) -> None:
    """Raise BadData if the folder has no CSV or JSON file, but only a database or nothing."""
    names = sorted(child.name for child in source.folder.iterdir())
    if any(name.endswith((".csv", ".json")) for name in names):
        return
    if any(name.endswith(".db") for name in names):
        raise BadData(
            f"{source.folder} has only databases ({', '.join(names)}).",
            "Export text: torch_npu.profiler.profiler.analyse(PATH, export_type='text').",
        )
    raise BadData(
        f"{source.folder} has no results: {', '.join(names) or 'it is empty'}.",
        "The raw data must be analysed first: torch_npu.profiler.profiler.analyse(PATH).",
    )


# Steps


def read_steps(source: Source) -> list[Step]:
    """Return the steps of the trace, else the steps of step_trace_time.csv, which have no phases."""
    trace_steps = read_trace(source)
    if trace_steps.steps:
        source.phases_found_by += trace_steps.phases_found_by
        source.notes += trace_steps.notes
        source.phases_measured = trace_steps.phases_measured
        return trace_steps.steps
    steps = list_phaseless_steps(source.read_csv("step_trace_time.csv"), source)
    if steps:
        source.phases_measured = source.begins_known = False
        source.phases_found_by += [
            "The iteration is computing + communication that is not overlapped + free time of step_trace_time.csv.",
            "Start of the forward pass and end of the backward pass are not in these files: the complete iteration "
            "counts as forward + backward. The steps are drawn one after the other; when each began is not known.",
        ]
    return steps


def list_phaseless_steps(rows: Iterable[CsvRow], source: Source) -> list[Step]:
    """Return a step without phases for each row with a number and a time; a note counts the other rows."""
    steps: list[Step] = []
    left_out = 0
    for row in rows:
        number, duration = row.number("Step"), find_duration(row)
        if number is None or duration is None or duration <= 0:
            left_out += 1
            continue
        begin = steps[-1].end_us if steps else 0.0
        steps.append(Step(source.rank, int(number), begin, begin + duration, begin + duration, begin))
    if left_out:
        source.notes.append(
            f"step_trace_time.csv has {left_out:,} rows without a step number or a time, which were left out; without "
            "calls of profiler.step() in the script, steps have no number."
        )
    return steps


def find_duration(row: CsvRow) -> float | None:
    """Return the time of a step: the sum of its three parts or, with pipeline parallelism, of stage and bubble."""
    parts = [row.time_us("Computing"), row.time_us("Communication(Not Overlapped)"), row.time_us("Free")]
    if None not in parts:
        return sum(part for part in parts if part is not None)
    stage, bubble = row.time_us("Stage"), row.time_us("Bubble")
    return None if stage is None else stage + (bubble or 0.0)


def read_trace(source: Source) -> FoundSteps:
    file = source.find_file("trace_view.json")
    if file is None:
        return FoundSteps()
    trace = [event for event in EventFile(file, source.notes) if is_needed(event)]
    return find_steps(
        (event for event in trace if event.get("cat") in HOST_CATEGORIES), find_launches(trace), source.rank
    )


def is_needed(event: RawEvent) -> bool:
    """Return True for events of the host, kernels, flows that connect them, and names of processes."""
    phase, category = event.get("ph"), event.get("cat")
    if phase == "M":
        return event.get("name") == "process_name"
    if phase in ("s", "f"):
        return category in ("fwdbwd", "async_npu")
    return phase == "X" and (category in HOST_CATEGORIES or "Task Type" in event["args"])


def find_launches(events: list[RawEvent]) -> list[Launch]:
    """Return the kernels with the time of the operator that launched them, by the flows of category async_npu.

    A flow starts (ph "s") at the operator and ends, with the same id, at the start of the kernel on its thread.
    """
    names = {event.get("pid"): event["args"].get("name") for event in events if event.get("ph") == "M"}
    starts: dict[Any, float] = {}
    ends: dict[tuple[Any, Any, float], Any] = {}
    for event in events:
        if event.get("cat") == "async_npu" and "ts" in event:
            if event["ph"] == "s":
                starts[event.get("id")] = event["ts"]
            else:
                ends[event.get("pid"), event.get("tid"), event["ts"]] = event.get("id")
    launches = []
    for event in events:
        if event["ph"] == "X" and names.get(event.get("pid")) == DEVICE_PROCESS and "ts" in event and "dur" in event:
            flow = ends.get((event.get("pid"), event.get("tid"), event["ts"]))
            if flow in starts:
                launches.append(Launch(starts[flow], event["ts"], event["ts"] + event["dur"]))
    return launches


# Kernels, operators, collectives


@dataclass
class OperatorSum(Sum):
    """Calls and times of one operator and signature."""

    self_us: float = 0.0
    device_us: float = 0.0


def read_operators(source: Source, steps: int) -> list[Operator]:
    """Return a row for each operator, shapes and line of the script."""
    sums: dict[tuple[str, str, str], OperatorSum] = defaultdict(OperatorSum)
    for row in source.read_csv("operator_details.csv"):
        total, self_us = row.time_us("Host Total Duration"), row.time_us("Host Self Duration")
        if total is None or self_us is None:
            continue
        entry = sums[row.text("Name"), row.text("Input Shapes"), find_location(row.text("Call Stack"))]
        entry.add_call(total)
        entry.self_us += self_us
        entry.device_us += row.time_us("Device Self Duration") or 0.0
    operators = [
        Operator(
            name,
            calls=entry.calls / steps,
            total_us=entry.time_us / steps,
            self_us=entry.self_us / steps,
            device_us=entry.device_us / steps,
            phase=find_phase(name),
            shapes=clean_shapes(shapes),
            location=location,
            rank=source.rank,
        )
        for (name, shapes, location), entry in sums.items()
    ]
    return sorted(operators, key=lambda operator: -(operator.device_us or 0.0) - operator.self_us)


def find_location(stack: str) -> str:
    """Return the innermost line of a call stack outside libraries, as train.py:41; "" if unknown."""
    for match in STACK_LINE.finditer(stack):
        if not any(library in match["file"] for library in LIBRARIES):
            return f"{Path(match['file']).name}:{match['line']}"
    return ""


def find_phase(name: str) -> Phase:
    """Return the phase of an operator by its name; "other" if unknown."""
    if name.startswith("autograd::engine") or name.endswith(("Backward", "Backward0", "Backward1", "_backward")):
        return "backward"
    if name.startswith(OPTIMIZER):
        return "update"
    return "data" if name.startswith(LOADER) else "other"


def read_communication(source: Source) -> list[Collective]:
    """Return the collectives of communication.json, with their sizes."""
    file = source.find_file("communication.json")
    collectives = []
    for groups in (read_json(file, source.notes) if file else {}).values():
        operations = groups.get("collective") if isinstance(groups, dict) else None
        for name, facts in operations.items() if isinstance(operations, dict) else ():
            collective = make_collective(str(name), facts if isinstance(facts, dict) else {})
            if collective is not None:
                collectives.append(collective)
    return collectives


def make_collective(name: str, facts: dict[str, Any]) -> Collective | None:
    """Return one collective; None for an entry that is a sum over all collectives, and for one without times."""
    times = facts.get("Communication Time Info")
    if not isinstance(times, dict) or name.startswith("Total"):
        return None
    start, duration = to_number(times.get("Start Timestamp(us)")), to_number(times.get("Elapse Time(ms)"))
    if start is None or duration is None or start <= 0:
        return None
    return Collective(name.split("__")[0].split("@")[0], start, duration * 1000, find_size(facts))


def find_size(facts: dict[str, Any]) -> int | None:
    """Return the bytes of a collective over all links; None if unknown."""
    links = facts.get("Communication Bandwidth Info")
    entries = [link for link in links.values() if isinstance(link, dict)] if isinstance(links, dict) else []
    sizes = [size for link in entries if (size := to_number(link.get("Transit Size(MB)")))]
    return round(sum(sizes) * (1 << 20)) if sizes else None


# Tables and facts


def read_tables(source: Source) -> dict[str, Any]:
    tables = {}
    for name in TABLES:
        file = source.find_file(f"{name}.csv")
        table = read_table(file, source.notes) if file else None
        if table is not None:
            tables[name] = table
    return tables


def build_facts(source: Source, path: Path, steps: list[Step]) -> Facts:
    return Facts(
        str(path),
        "torch_npu",
        device="npu",
        recorded_steps=len(steps),
        recorded_step_us=find_median_iteration([step for step in steps if step.previous_end_us is not None]),
        phases_found_by=tuple(source.phases_found_by),
        phases_measured=source.phases_measured,
        versions=read_versions(source),
    )


def read_versions(source: Source) -> dict[str, str]:
    versions = {}
    for file in sorted(source.folder.parent.glob("profiler_info*.json")):
        record = read_json(file, source.notes)
        for name in ("torch_version", "torch_npu_version", "cann_version", "driver_version"):
            if isinstance(record.get(name), str) and record[name]:
                versions[name.removesuffix("_version")] = record[name]
    return versions
