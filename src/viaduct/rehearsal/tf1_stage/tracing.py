"""Traces that profiling_mode asks for: each training step and the table of its parts.

    {output}/PROF_{rank}_{time}/
      timeline/step_{n}.json        every operator, for chrome://tracing or Perfetto; the first steps only
      summary/step_trace.csv        FP start, BP end and iteration end of every step, in microseconds

The figures are those of the rehearsal, true and of no use for the NPU's speed: what is shown is that the options are
right and that fp_point and bp_point are in the graph.
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
from viaduct.rehearsal.tf1_stage.sessions import Pass

TIMELINES = 10
COLUMNS = (
    *("Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)"),
    *("FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID"),
)
_tracers: dict[int, Tracer | None] = {}


class Tracer:
    """One session's traces."""

    def __init__(self, run: Pass, options: dict[str, Any]) -> None:
        stamp = time.strftime("%Y%m%d%H%M%S")
        self.folder = Path(options["output"]) / f"PROF_{state.rank():06d}_{stamp}_{os.getpid()}"
        self.fp_point, self.bp_point = options.get("fp_point") or "", options.get("bp_point") or ""
        self.ends: list[float] = []
        for part in ("timeline", "summary"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.row(COLUMNS)

    def row(self, values: Any) -> None:
        with (self.folder / "summary" / "step_trace.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(values)

    def keep(self, stats: Any) -> None:
        from tensorflow.python.client.timeline import Timeline

        number = len(self.ends)
        if number < TIMELINES:
            text = Timeline(stats).generate_chrome_trace_format(show_memory=False)
            (self.folder / "timeline" / f"step_{number}.json").write_text(text)
        spans = {node.node_name: node for device in stats.dev_stats for node in device.node_stats}
        if spans:
            self.row(self.parts(spans, number))

    def parts(self, spans: dict[str, Any], number: int) -> list[Any]:
        """FP begins where fp_point does, BP ends where bp_point does; found by themselves where they are empty."""
        begun = spans[self.fp_point] if self.fp_point in spans else min(spans.values(), key=start_time)
        backward = [span for name, span in spans.items() if "gradients" in name] or list(spans.values())
        done = spans[self.bp_point] if self.bp_point in spans else max(backward, key=end_time)
        start, middle, end = start_time(begun), end_time(done), max(map(end_time, spans.values()))
        before = self.ends[-1] if self.ends else None
        self.ends.append(end)
        duration = end - (start if before is None else before)
        tail = "N/A" if before is None else start - before
        return [state.local_rank(), number + 1, start, middle, end, duration, middle - start, end - middle, tail, 1]


def start_time(span: Any) -> float:
    """Return when a span began, in microseconds."""
    return float(span.all_start_micros)


def end_time(span: Any) -> float:
    """Return when a span ended, in microseconds."""
    return float(span.all_start_micros + max(span.all_end_rel_micros, 0))


def tracer_of(run: Pass) -> Tracer | None:
    """The tracer of this run's session, where its options ask for one; made at its first training step."""
    if not (run.training and run.opened.chosen.npu and run.opened.chosen.values.get("profiling_mode")):
        return None
    key = id(run.opened)
    if key not in _tracers:
        options = read_profiling_options(run)
        _tracers[key] = Tracer(run, options) if options else None
    return _tracers[key]


def read_profiling_options(run: Pass) -> dict[str, Any] | None:
    """Return the checked profiling_options; None if they are invalid."""
    text = run.opened.chosen.values.get("profiling_options") or ""
    try:
        options = json.loads(text)
    except ValueError:
        return refuse(run, f"profiling_options is not JSON: {text!r}", 'Write {"output":"…","training_trace":"on"}.')
    folder = options.get("output") if isinstance(options, dict) else None
    if not folder or not os.path.isdir(folder):
        return refuse(run, f"the output of profiling_options is {folder!r}, no folder", "Make the folder first.")
    names = {op.name for op in run.reach.ops}
    for point in ("fp_point", "bp_point"):
        if options.get(point) and options[point] not in names:
            return refuse(run, f"{point} {options[point]!r} is no operator of this graph", 'Leave it empty: "".')
    return options  # type: ignore[no-any-return]


def refuse(run: Pass, what: str, change: str) -> dict[str, Any] | None:
    card = "Profiling does not start, or gives no training trace."
    limits.report_violation("parameter-map", f"In this session's config {what}.", card, change, at=run.opened.location)
    return None


def run_traced(run: Pass, call: Callable[[Any, Any], Any], options: Any, metadata: Any) -> Any:
    """Run with tracing where it is asked for; `call` takes run options and metadata."""
    tracer = tracer_of(run)
    if tracer is None:
        return call(options, metadata)
    from tensorflow.core.protobuf import config_pb2

    wanted = config_pb2.RunOptions()
    if options is not None:
        wanted.CopyFrom(options)
    wanted.trace_level = config_pb2.RunOptions.FULL_TRACE
    kept = config_pb2.RunMetadata()
    result = call(wanted, kept)
    tracer.keep(kept.step_stats)
    if metadata is not None:
        metadata.CopyFrom(kept)
    return result
