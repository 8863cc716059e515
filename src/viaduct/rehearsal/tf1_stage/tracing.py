"""Traces of training steps, requested by the session option profiling_mode: timelines, and a table of phases.

    {output}/PROF_{rank}_{time}/
      timeline/step_{n}.json        every operator, for chrome://tracing or Perfetto; the first steps only
      summary/step_trace.csv        start of the forward pass (FP), ends of the backward pass (BP) and of the step

The table is in microseconds. The times are the CPU's and say nothing about the NPU's speed. The trace shows that the
options are valid, and that the operators which the options name as fp_point (where the forward pass begins) and
bp_point (where the backward pass ends) are in the graph. Steps that Keras runs itself (fit) are not traced.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import state
from viaduct.rehearsal.tf1_stage.sessions import GraphRun

MAX_TIMELINES = 10  # steps of a session that get a timeline
STEP_TRACE_COLUMNS = (
    "Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)",
    "FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID",
)  # fmt: skip
_tracers: dict[int, Tracer | None] = {}  # by the id of the session's record; None if its options are invalid


class Tracer:
    """Writes the traces of one session."""

    def __init__(self, options: dict[str, Any]) -> None:
        stamp = time.strftime("%Y%m%d%H%M%S")
        self.folder = Path(options["output"]) / f"PROF_{state.rank():06d}_{stamp}_{os.getpid()}"
        self.fp_point, self.bp_point = options.get("fp_point") or "", options.get("bp_point") or ""
        self.ends: list[float] = []  # of the steps in the table, in microseconds
        for part in ("timeline", "summary"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.write_row(STEP_TRACE_COLUMNS)

    def write_row(self, values: Any) -> None:
        with (self.folder / "summary" / "step_trace.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(values)

    def record_step(self, stats: Any) -> None:
        """Write the timeline and the row of one step, from TensorFlow's step_stats."""
        from tensorflow.python.client.timeline import Timeline

        number = len(self.ends)
        if number < MAX_TIMELINES:
            text = Timeline(stats).generate_chrome_trace_format(show_memory=False)
            (self.folder / "timeline" / f"step_{number}.json").write_text(text)
        spans = {node.node_name: node for device in stats.dev_stats for node in device.node_stats}
        if spans:
            self.write_row(self.measure_phases(spans, number))

    def measure_phases(self, spans: dict[str, Any], number: int) -> list[Any]:
        """Return the row of a step for the table, and store the step's end.

        FP starts with fp_point or the first operator. BP ends with bp_point, the last operator with "gradients" in its
        name, or the last operator.
        """
        forward = spans[self.fp_point] if self.fp_point in spans else min(spans.values(), key=start_time)
        gradients = [span for name, span in spans.items() if "gradients" in name] or list(spans.values())
        backward = spans[self.bp_point] if self.bp_point in spans else max(gradients, key=end_time)
        start, middle, end = start_time(forward), end_time(backward), max(map(end_time, spans.values()))
        previous_end = self.ends[-1] if self.ends else None
        self.ends.append(end)
        duration = end - (start if previous_end is None else previous_end)
        data_bound = "N/A" if previous_end is None else start - previous_end
        # As in STEP_TRACE_COLUMNS; the last value is the model's id.
        phases = [start, middle, end, duration, middle - start, end - middle, data_bound]
        return [state.local_rank(), number + 1, *phases, 1]


def start_time(span: Any) -> float:
    return float(span.all_start_micros)


def end_time(span: Any) -> float:
    return float(span.all_start_micros + max(span.all_end_rel_micros, 0))


def find_tracer(run: GraphRun) -> Tracer | None:
    """Return the tracer of a training run's session, made at its first step; None without valid options."""
    if not (
        run.is_training
        and run.session_record.npu_options.is_on_npu
        and run.session_record.npu_options.values.get("profiling_mode")
    ):
        return None
    key = id(run.session_record)
    if key not in _tracers:
        options = read_profiling_options(run)
        _tracers[key] = Tracer(options) if options else None
    return _tracers[key]


def read_profiling_options(run: GraphRun) -> dict[str, Any] | None:
    """Return the session's profiling_options; report invalid ones, and return None."""
    text, location = run.session_record.npu_options.values.get("profiling_options") or "", run.session_record.location
    try:
        options = json.loads(str(text))
    except ValueError:
        limits.report_violation("parameter-map", "profiling text", text=text, at=location)
        return None
    folder = options.get("output") if isinstance(options, dict) else None
    if not folder or not os.path.isdir(folder):
        limits.report_violation("parameter-map", "profiling output", folder=folder, at=location)
        return None
    names = {op.name for op in run.subgraph.ops}
    for point in ("fp_point", "bp_point"):
        if options.get(point) and options[point] not in names:
            limits.report_violation("parameter-map", "profiling point", point=point, name=options[point], at=location)
            return None
    return options  # type: ignore[no-any-return]


def run_traced(run: GraphRun, call: Callable[[Any, Any], Any], options: Any, metadata: Any) -> Any:
    """Run with tracing if the session requests it; `call` takes run options and metadata."""
    tracer = find_tracer(run)
    if tracer is None:
        return call(options, metadata)
    from tensorflow.core.protobuf import config_pb2

    traced_options = config_pb2.RunOptions()
    if options is not None:
        traced_options.CopyFrom(options)
    traced_options.trace_level = config_pb2.RunOptions.FULL_TRACE
    traced_metadata = config_pb2.RunMetadata()
    result = call(traced_options, traced_metadata)
    with limits.blame_viaduct():
        tracer.record_step(traced_metadata.step_stats)
    if metadata is not None:
        metadata.CopyFrom(traced_metadata)
    return result
