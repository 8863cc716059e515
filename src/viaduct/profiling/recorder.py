"""Record operators, kernels and memory of some steps with torch.profiler.

    recorder = OperatorRecorder("cuda", script_folder=Path("my_project"))
    recorder.add_network(network)
    recorder.start()
    for batch in batches:
        train(batch)
        recorder.end_step()
    recorded = recorder.stop()

Recorded steps are slower, so the times give shares of a step but not its length. Times are on the host's clock in
microseconds (`clocks.read_host_us`).
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from viaduct.profiling.clocks import read_host_us
from viaduct.profiling.collectives import list_collectives
from viaduct.profiling.events import ANNOTATION, PYTHON, Span, drop_idle_functions
from viaduct.profiling.kernel_rows import list_kernels
from viaduct.profiling.locations import CallLines, ScriptFiles, list_starts, locate_calls, read_call_lines
from viaduct.profiling.memory import Storages, describe_memory, find_live_tensors, select_alive
from viaduct.profiling.module_hooks import ModuleHooks
from viaduct.profiling.operator_rows import list_operators
from viaduct.profiling.record import Collective, Kernel, MemoryOwner, MemoryPoint, Operator
from viaduct.profiling.system import PROC, read_resident
from viaduct.profiling.trace_context import Trace
from viaduct.torch_compat import hide_profiler_cycle_warning

CLOCK = "viaduct.clock"
"""Annotation at the start of recording and after each step, which divides the trace into steps.

The host's time of each annotation relates the trace's clock to the host's.
"""

MAX_GROWTH_BYTES = 128 << 20
"""Growth of the process after which recording ends: about 500,000 events, which take 2 GiB to evaluate."""


@dataclass(frozen=True)
class RecordedSteps:
    """Result of the operator profiler for some steps of one rank."""

    operators: list[Operator] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    memory: list[MemoryPoint] = field(default_factory=list)
    memory_owners: list[MemoryOwner] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class OperatorRecorder:
    """Records steps; with a script's folder also the Python functions around operators (`with_stacks`)."""

    def __init__(self, device: str, rank: int = 0, script_folder: Path | None = None) -> None:
        self.device = device
        self.rank = rank
        self.script_folder = script_folder
        self.with_stacks = script_folder is not None
        self.hooks = ModuleHooks()
        self.notes: list[str] = []
        self.marks: list[float] = []  # perf_counter in microseconds at each CLOCK annotation
        self.left_out: set[int] = set()  # indices of recorded steps with interruptions
        self.profiler: profile | None = None
        self.live_before: dict[str, Storages] = {}  # storages of tensors at the start, by owner
        self.resident_before = 0  # resident bytes of the process at the start
        self.has_stopped = False

    def add_network(self, network: nn.Module) -> None:
        self.hooks.add_network(network)

    def start(self) -> None:
        """Start recording; the next step is the first recorded one."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise Kineto logs its start and stop to stderr
        activities = self.list_activities()
        self.live_before = find_live_tensors(self.device)
        self.profiler = profile(
            activities=activities, record_shapes=True, profile_memory=True, with_stack=self.with_stacks
        )
        with hide_profiler_cycle_warning():
            self.profiler.start()
        self.resident_before = read_resident(PROC, "self")
        self.hooks.attach()
        self.mark_time()

    def list_activities(self) -> list[ProfilerActivity]:
        """Return what torch.profiler records on this device; a note says if it does not see the device's kernels."""
        activities = [ProfilerActivity.CPU]
        if self.device == "cuda":
            os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")  # otherwise captured graphs replay slowly
            with hide_profiler_cycle_warning(), profile(activities=[*activities, ProfilerActivity.CUDA]):
                torch.cuda.synchronize()  # the first profile of a process starts CUPTI, which is slow
            activities.append(ProfilerActivity.CUDA)
        elif self.device != "cpu":
            self.notes.append(
                f"torch.profiler does not see the kernels of {self.device}: operators have only the time of the host, "
                f"and there are no kernels; `viaduct profile read` reads the vendor's own profile"
            )
        return activities

    def end_step(self, leave_out: bool = False) -> None:
        """Mark the end of a recorded step; stop recording if the process has grown by MAX_GROWTH_BYTES.

        With `leave_out` the operators of the step do not count, because it included other work, such as an evaluation.
        """
        if self.profiler is None or self.has_stopped:
            return
        if leave_out:
            self.left_out.add(len(self.marks) - 1)
        self.mark_time()
        grown = read_resident(PROC, "self") - self.resident_before
        if grown > MAX_GROWTH_BYTES:
            self.stop_profiler()
            self.notes.append(
                f"recording ended after {len(self.marks) - 1} of the steps: memory had grown by {grown >> 20} MiB; "
                f"many Python calls in a step, such as a loader's in this process, make a trace large"
            )

    def stop_profiler(self) -> None:
        if self.profiler is not None and not self.has_stopped:
            self.has_stopped = True
            if self.device != "cpu":
                getattr(torch, self.device).synchronize()
            self.hooks.detach()
            self.profiler.stop()

    def mark_time(self) -> None:
        """Add a CLOCK annotation to the trace, and store its time on the host."""
        with record_function(CLOCK):
            self.marks.append(read_host_us())

    def stop(self) -> RecordedSteps:
        """Stop recording, and return the result."""
        if self.profiler is None:
            return RecordedSteps(notes=["operators were not recorded: no step was reached"])
        self.stop_profiler()
        profiler, self.profiler = self.profiler, None
        if self.device == "cpu":  # the profiler does not see the release of earlier tensors here
            self.live_before = select_alive(self.live_before, find_live_tensors(self.device))
        with disable_garbage_collector():
            raw, base_ns = export_events(profiler)
            lines = read_call_lines(profiler, list_starts(raw, base_ns)) if self.with_stacks else {}
            return self.evaluate(raw, base_ns, lines)

    def evaluate(self, raw: list[dict[str, Any]], base_ns: int, lines: CallLines) -> RecordedSteps:
        """Return the result for the events of a trace; `base_ns` is the zero of their clock in nanoseconds."""
        annotations = find_clock_annotations(raw)
        if len(annotations) != len(self.marks):
            self.notes.append("the profiler lost events: operators cannot be assigned to the recorded steps")
            return RecordedSteps(notes=self.notes)
        times = [moment for moment, _ in annotations]
        _, main_thread = annotations[0]
        trace = Trace.read(raw, self.list_step_spans(times), main_thread, self.device)
        files = ScriptFiles(self.script_folder)
        trace.locations = locate_calls(trace.events, files, lines, base_ns)
        # Added to a time of the trace, it gives the time on the host's clock.
        shift = median(mark - moment for mark, moment in zip(self.marks, times, strict=True))
        memory, owners = describe_memory(raw, trace, self.live_before, self.rank)
        return RecordedSteps(
            operators=list_operators(trace, self.rank),
            kernels=list_kernels(trace, self.rank),
            memory=[replace(point, time_us=point.time_us + shift) for point in memory],
            memory_owners=owners,
            collectives=[replace(row, start_us=row.start_us + shift) for row in list_collectives(trace)],
            events=select_events(raw, shift),
            notes=self.notes,
        )

    def list_step_spans(self, times: Sequence[float]) -> list[Span]:
        """Return start and end of each step without an interruption, or of all steps if each has one.

        `times` has the time of each CLOCK annotation: one more than there are steps that ended.
        """
        if len(times) == 1:
            self.notes.append("the first recorded step did not end: only operators of its beginning were recorded")
            return [(times[0], float("inf"))]
        step_spans = list(pairwise(times))
        uninterrupted = [span for number, span in enumerate(step_spans) if number not in self.left_out]
        if not uninterrupted:
            self.notes.append(
                "every recorded step was interrupted, for example by an evaluation: operators include the interruptions"
            )
        elif len(uninterrupted) < len(step_spans):
            count = len(step_spans) - len(uninterrupted)
            self.notes.append(
                f"{count} of {len(step_spans)} recorded steps were interrupted, for example by an evaluation: left out"
            )
        return uninterrupted or step_spans


@contextmanager
def disable_garbage_collector() -> Iterator[None]:
    """Disable Python's garbage collector within the block, because a trace's many objects would trigger it often."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def export_events(profiler: profile) -> tuple[list[dict[str, Any]], int]:
    """Return the trace's events, and the zero of their clock in nanoseconds (0 if unknown)."""
    with tempfile.TemporaryDirectory(prefix="viaduct-trace-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(errors="replace"))
    return drop_idle_functions(trace["traceEvents"]), int(trace.get("baseTimeNanoseconds") or 0)


def find_clock_annotations(raw: list[dict[str, Any]]) -> list[tuple[float, Any]]:
    """Return the time and (process, thread) of each CLOCK annotation, in order of time."""
    annotations = (event for event in raw if event.get("name") == CLOCK and event.get("cat") == ANNOTATION)
    return sorted((event["ts"] + event["dur"] / 2, (event["pid"], event["tid"])) for event in annotations)


def select_events(raw: list[dict[str, Any]], shift: float) -> list[dict[str, Any]]:
    """Return the events moved by `shift`, without Python functions, allocations and the CLOCK annotations."""
    left_out = (PYTHON, "cpu_instant_event")
    selected = (event for event in raw if event.get("cat") not in left_out and event.get("name") != CLOCK)
    return [event | {"ts": event["ts"] + shift} if "ts" in event else event for event in selected]
