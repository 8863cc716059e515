"""The table of a traced step's phases, and profiling options that are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from viaduct.rehearsal.limits import CardRefuses
from viaduct.rehearsal.tf1_stage import tracing


def make_span(start: int, duration: int) -> Any:
    return SimpleNamespace(all_start_micros=start, all_end_rel_micros=duration)


SPANS = {
    "input": make_span(100, 10),
    "conv": make_span(120, 30),
    "gradients/conv": make_span(160, 40),
    "gradients/bias": make_span(150, 20),
    "update": make_span(210, 15),
}


def measure(folder: Path, **points: str) -> list[Any]:
    return tracing.Tracer({"output": str(folder), **points}).measure_phases(SPANS, 0)


def test_without_points_the_phases_end_at_the_last_gradient_and_the_last_operator(tmp_path: Path) -> None:
    _, number, start, middle, end, duration, forward, tail, data, _ = measure(tmp_path)
    assert (number, start, middle, end) == (1, 100, 200, 225)
    assert (duration, forward, tail, data) == (125, 100, 25, "N/A"), "no step came before"


def test_the_points_of_the_options_bound_the_phases(tmp_path: Path) -> None:
    _, _, start, middle, end, *_ = measure(tmp_path, fp_point="conv", bp_point="gradients/bias")
    assert (start, middle, end) == (120, 170, 225)


def test_a_second_steps_time_begins_at_the_end_of_the_first(tmp_path: Path) -> None:
    tracer = tracing.Tracer({"output": str(tmp_path)})
    tracer.measure_phases({"a": make_span(0, 100)}, 0)
    row = tracer.measure_phases({"a": make_span(130, 50)}, 1)
    assert (row[5], row[8]) == (80, 30)
    (folder,) = tmp_path.glob("PROF_*")
    with (folder / "summary" / "step_trace.csv").open() as file:
        assert next(csv.reader(file)) == list(tracing.STEP_TRACE_COLUMNS)


def make_run(profiling: str, names: tuple[str, ...] = (), **changes: Any) -> Any:
    values = {"profiling_mode": True, "profiling_options": profiling}
    record = SimpleNamespace(npu_options=SimpleNamespace(is_on_npu=True, values=values), location=("train.py", 3))
    subgraph = SimpleNamespace(ops=[SimpleNamespace(name=name) for name in names])
    return SimpleNamespace(**{"is_training": True, "session_record": record, "subgraph": subgraph, **changes})


def test_a_run_that_does_not_train_is_not_traced(tmp_path: Path) -> None:
    assert tracing.find_tracer(make_run("no JSON", is_training=False)) is None


def test_options_without_a_folder_or_with_an_unknown_point_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIADUCT_LIMITS", "error")
    point = json.dumps({"output": str(tmp_path), "fp_point": "conv1"})
    for text in ("no JSON", "[]", json.dumps({"output": str(tmp_path / "missing")}), point):
        with pytest.raises(CardRefuses):
            tracing.read_profiling_options(make_run(text, ("conv",)))
    fitting = json.dumps({"output": str(tmp_path), "fp_point": "conv", "bp_point": ""})
    assert tracing.read_profiling_options(make_run(fitting, ("conv",))) == json.loads(fitting)
