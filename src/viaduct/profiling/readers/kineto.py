"""Traces of torch.profiler: one *.pt.trace.json(.gz), or a folder of tensorboard_trace_handler with several workers.

A worker (a rank) writes a file for each cycle of torch.profiler's schedule. Steps come from all files; operators,
kernels and memory from the one with most steps. Everything was measured while the profiler was on.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viaduct.errors import BadData
from viaduct.profiling.collectives import COLLECTIVE_KERNEL_PREFIXES, list_collectives
from viaduct.profiling.events import ON_DEVICE, ON_HOST, PYTHON, RUNTIMES, RawEvent, Span
from viaduct.profiling.json_events import EventFile
from viaduct.profiling.kernel_rows import list_kernels
from viaduct.profiling.merge import UNIX_FROM_US, merge_profiles, shift_profile
from viaduct.profiling.operator_rows import list_operators
from viaduct.profiling.record import Facts, MemoryPoint, Profile, Step, find_median_iteration, thin_points
from viaduct.profiling.step_split import STEP_TRACE_TABLE, split_steps
from viaduct.profiling.trace_context import MODULE_ANNOTATION, Trace
from viaduct.profiling.trace_steps import FoundSteps, Launch, add_collectives, find_steps

LAYOUT = "a trace of torch.profiler (*.pt.trace.json or .gz, also in a folder of several workers)"
TRIED_AFTER: tuple[str, ...] = ("viaduct_folder", "torch_npu", "msprof")
TRACE_NAME = re.compile(r"(?P<worker>.+?)(\.\d+)?(\.pt)?\.trace\.json(\.gz)?")
JSON_NAME = re.compile(r".+\.json(\.gz)?")
MODULE_PREFIX = "nn.Module: "  # of the names of Python events for calls of modules
FUNCTION = re.compile(r"(?P<file>[^()<>]+\.py)\((?P<line>\d+)\): (?P<name>\S+)")
# Packages whose files have names relative to the folder of installed packages.
LIBRARIES = ("torch", "torchvision", "timm", "numpy", "PIL", "typing_extensions", "triton", "tqdm")  # not the script's
BACKWARD_CALL = re.compile(r"torch/_tensor\.py\(\d+\): backward")
# Arguments of events that are used, by their required type.
NUMBERS = ("correlation", "External id", "Sequence number", "Device Type", "In msg nelems")
LISTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
DEVICE_TYPES = {0: "cpu", 1: "cuda", 20: "npu"}  # numbers of c10::DeviceType; 20 is PrivateUse1, which torch_npu uses


@dataclass
class Cycle:
    """One trace file: its header, its events and the steps in them."""

    header: dict[str, Any]
    events: list[RawEvent]
    found_steps: FoundSteps
    device: str


def recognise(path: Path) -> bool:
    """Return True for a trace file, and for a folder of trace files."""
    if path.is_file():
        return JSON_NAME.fullmatch(path.name) is not None and any(True for _ in EventFile(path, []))
    return bool(find_files(path))


def find_files(folder: Path) -> list[Path]:
    """Return the traces in a folder, else in its subfolders, else in the folders of TensorBoard's plug-in."""
    for pattern in ("*", "*/*", "plugins/profile/*/*"):
        traces = [path for path in folder.glob(pattern) if TRACE_NAME.fullmatch(path.name) and path.is_file()]
        if traces:
            return sorted(traces)
    return []


def read(path: Path) -> Profile:
    """Return the profile of the worker, or of all workers as ranks, whose trace files are at a path."""
    files = [path] if path.is_file() else find_files(path)
    by_name: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        match = TRACE_NAME.fullmatch(file.name)
        by_name[match["worker"] if match else file.name].append(file)
    profiles = [read_worker(worker_files, path) for worker_files in by_name.values()]
    if len(profiles) == 1:
        return profiles[0]
    return merge_profiles(number_ranks(profiles), list(by_name))


def number_ranks(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles with the ranks in their traces, or with their positions if the ranks are not distinct."""
    ranks = [profile.steps[0].rank if profile.steps else None for profile in profiles]
    if len(set(ranks)) == len(ranks) and None not in ranks:
        return list(profiles)
    note = "The traces do not have distinct ranks: workers are numbered in the order of their names."
    return [set_rank(profile, number, note) for number, profile in enumerate(profiles)]


def set_rank(profile: Profile, rank: int, note: str) -> Profile:
    facts = replace(profile.facts, notes=(*profile.facts.notes, note))
    names = ("steps", "operators", "kernels", "memory")
    records: dict[str, Any] = {name: [replace(row, rank=rank) for row in getattr(profile, name)] for name in names}
    return replace(profile, facts=facts, **records)


def read_worker(files: Sequence[Path], path: Path) -> Profile:
    """Return the profile of one worker; `path` is the source that the user named."""
    notes: list[str] = []
    cycles = [read_cycle(file, notes) for file in files]
    best = max(cycles, key=lambda cycle: (len(cycle.found_steps.steps), len(cycle.events)))
    if not best.events:
        raise BadData(f"{files[0]} has no events of torch.profiler.", *notes)
    if len(cycles) > 1:
        notes.append(f"Operators and memory come from one of {len(cycles)} trace files, the one with most steps.")
    rank = read_distributed(best.header, "rank", 0)
    steps = sorted((step for cycle in cycles for step in cycle.found_steps.steps), key=lambda step: step.end_us)
    profile = build_profile(best, [replace(step, rank=rank) for step in steps], rank, notes)
    phases_measured = all(cycle.found_steps.phases_measured for cycle in cycles)
    facts = build_facts(path, best, profile.steps, phases_measured, notes)
    # Times in the profile count from the first event of all files.
    zero = min((event["ts"] for cycle in cycles for event in cycle.events if event["ph"] == "X"), default=0.0)
    facts = replace(facts, zero_unix_us=find_unix_time(best.header, zero))
    return shift_profile(replace(profile, facts=facts), -zero)


def read_cycle(file: Path, notes: list[str]) -> Cycle:
    trace = EventFile(file, notes)
    events = [converted for event in trace if (converted := convert_event(event)) is not None]
    device = "cuda" if any(event.get("cat") in ON_DEVICE for event in events) else "cpu"
    return Cycle(trace.header, events, find_steps(events, find_launches(events)), device)


def convert_event(event: RawEvent) -> RawEvent | None:
    """Return an event that is needed, else None; a call of a module becomes an annotation.

    The needed Python functions are calls of modules, `Tensor.backward` and functions of the script.
    """
    phase, category, name = event.get("ph"), event.get("cat"), event.setdefault("name", "")
    if "ts" not in event or not has_known_types(event["args"]):
        return None
    if category == PYTHON:
        if name.startswith(MODULE_PREFIX) and "dur" in event:
            return event | {"cat": "user_annotation", "name": MODULE_ANNOTATION + name.removeprefix(MODULE_PREFIX)}
        return event if BACKWARD_CALL.match(name) or find_location(name) else None
    if phase == "X" and "dur" in event and (category in ON_HOST or category in ON_DEVICE):
        return event
    is_memory = phase == "i" and name == "[memory]"
    return event if is_memory or (phase == "s" and category == "fwdbwd") else None


def has_known_types(arguments: dict[str, Any]) -> bool:
    """Return True if the used arguments have the types that torch.profiler writes."""
    numbers = all(isinstance(arguments.get(name), int | None) for name in NUMBERS)
    return numbers and all(isinstance(arguments.get(name), list | None) for name in LISTS)


def find_location(name: str) -> str:
    """Return "train.py:12 in main()" for a function of the script, with its first line; "" for libraries."""
    match = FUNCTION.fullmatch(name)
    if match is None or "site-packages" in name or "dist-packages" in name:
        return ""
    package = match["file"].lstrip("/").split("/")[0].removesuffix(".py")
    is_installed = not match["file"].startswith("/") and package in (*LIBRARIES, *sys.stdlib_module_names)
    if is_installed or "/lib/python" in name:
        return ""
    function = match["name"] if match["name"].startswith("<") else f"{match['name']}()"
    return f"{Path(match['file']).name}:{match['line']} in {function}"


def find_launches(events: Iterable[RawEvent]) -> list[Launch]:
    """Return the kernels with the time of their launch: the runtime's call with the same correlation number."""
    calls: dict[Any, float] = {}
    kernels = []
    for event in events:
        correlation = event["args"].get("correlation")
        if correlation is not None and event.get("cat") in RUNTIMES:
            calls[correlation] = event["ts"]
        elif correlation is not None and event.get("cat") in ON_DEVICE:
            kernels.append((correlation, event["ts"], event["ts"] + event["dur"]))
    return [Launch(calls[key], start, end) for key, start, end in kernels if key in calls]


def read_distributed(header: dict[str, Any], name: str, least: int) -> int:
    """Return rank or world_size from "distributedInfo" in a trace's header; `least` if it has none."""
    information = header.get("distributedInfo")
    number = information.get(name) if isinstance(information, dict) else None
    return number if isinstance(number, int) and number >= least else least


def find_unix_time(header: dict[str, Any], zero: float) -> float | None:
    """Return the Unix time of the moment `zero` on the trace's clock; None if the trace does not have it."""
    base = header.get("baseTimeNanoseconds")
    if isinstance(base, int) and base > 0:
        return base / 1000 + zero
    return zero if zero > UNIX_FROM_US else None


def build_profile(cycle: Cycle, steps: list[Step], rank: int, notes: list[str]) -> Profile:
    """Return the profile of a worker without its facts; add notes about missing data."""
    facts = Facts("", "kineto")  # replaced by build_facts when all notes are known
    memory = read_memory(cycle.events, cycle.device, rank)
    if not cycle.found_steps.step_spans:
        begin = min(event["ts"] for event in cycle.events)
        end = max(event["ts"] + event.get("dur", 0.0) for event in cycle.events)
        notes.append("Figures of operators are sums over the complete trace, not figures of one step.")
        step_spans, thread = [(begin, end + 1)], None  # + 1, because the end of a span does not belong to it
    else:
        step_spans, thread = cycle.found_steps.step_spans, cycle.found_steps.main_thread
    trace = Trace.read(cycle.events, step_spans, thread, cycle.device)
    trace.locations.update({id(event): find_location(event.name) for event in trace.events if event.category == PYTHON})
    if any(trace.locations.values()):
        notes.append("Lines of operators are the first lines of their functions: the trace has no other lines.")
    collectives = list_collectives(trace)
    steps = add_collectives(steps, collectives, computing=None)  # their exposed times are known already
    tables = {}
    if cycle.device != "cpu":
        tables[STEP_TRACE_TABLE] = split_steps(steps, find_computing(cycle.events), collectives)
    return Profile(facts, steps, list_operators(trace, rank), list_kernels(trace, rank), memory, tables=tables)


def find_computing(events: Iterable[RawEvent]) -> list[Span]:
    """Return the spans of kernels except collectives; copies count as free time."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    computing = [event for event in kernels if not str(event["name"]).startswith(COLLECTIVE_KERNEL_PREFIXES)]
    return [(event["ts"], event["ts"] + event["dur"]) for event in computing]


def read_memory(events: Iterable[RawEvent], device: str, rank: int) -> list[MemoryPoint]:
    """Return the allocator's memory over time, for the device of the trace."""
    points: dict[str, list[MemoryPoint]] = defaultdict(list)
    for event in events:
        args = event["args"]
        if event["ph"] != "i":  # of instant events, `convert_event` keeps only those of memory
            continue
        allocated, reserved = args.get("Total Allocated"), args.get("Total Reserved")
        if isinstance(allocated, int) and allocated >= 0:
            known_reserved = reserved if isinstance(reserved, int) and reserved > 0 else None
            kind = DEVICE_TYPES.get(args.get("Device Type", 0), "cuda")
            points[kind].append(MemoryPoint(event["ts"], allocated, known_reserved, rank))
    return thin_points(points.get(device) or [])


def build_facts(path: Path, cycle: Cycle, steps: Sequence[Step], phases_measured: bool, notes: Sequence[str]) -> Facts:
    return Facts(
        str(path),
        "kineto",
        device=cycle.device,
        description=describe_device(cycle.header),
        ranks=read_distributed(cycle.header, "world_size", 1),
        recorded_steps=len(steps),
        recorded_step_us=find_median_iteration([step for step in steps if step.previous_end_us is not None]),
        phases_found_by=tuple(cycle.found_steps.phases_found_by),
        notes=tuple(dict.fromkeys([*notes, *cycle.found_steps.notes, *describe_missing(cycle)])),
        phases_measured=phases_measured,
    )


def describe_missing(cycle: Cycle) -> list[str]:
    """Return notes about missing data, with the options of torch.profiler that record them."""
    operators = [event for event in cycle.events if event.get("cat") == "cpu_op"]
    notes = []
    if operators and not any("Input Dims" in event["args"] for event in operators):
        notes.append("The trace has no shapes (record_shapes=True): work and layouts are not known.")
    if not any(event["ph"] == "i" for event in cycle.events):
        notes.append("The trace has no memory (profile_memory=True).")
    return notes


def describe_device(header: dict[str, Any]) -> str:
    """Return the name of the first GPU in a trace's header; "" without one."""
    properties = header.get("deviceProperties")
    devices = [device for device in properties if isinstance(device, dict)] if isinstance(properties, list) else []
    return next((str(device["name"]) for device in devices if device.get("name")), "")
