"""Parts of a step: computing, communication that is not overlapped, free time."""

from __future__ import annotations

from typing import Any

import pytest

from viaduct.profiling.record import Collective, Facts, Profile, Step
from viaduct.profiling.step_split import STEP_TRACE_TABLE, cut_spans, read_step_parts, split_steps

STEPS = [Step(0, 1, 10.0, 80.0, 100.0, None), Step(0, 2, 110.0, 180.0, 200.0, 100.0)]


def make_profile(columns: list[str], *rows: list[Any]) -> Profile:
    return Profile(Facts("a", "kineto"), tables={STEP_TRACE_TABLE: {"columns": columns, "rows": list(rows)}})


def test_a_step_whose_start_is_not_known_is_left_out() -> None:
    assert split_steps(STEPS[:1], [(0, 100)], [])["rows"] == []


def test_the_parts_of_a_step_add_up_and_overlaps_count_once() -> None:
    computing = [(90, 130), (120, 150)]  # two streams; 10 µs lie in the step before
    collectives = [Collective("all_reduce", 140, 30), Collective("all_reduce", 190, 30)]  # 10 µs lie after the step
    table = split_steps(STEPS, computing, collectives)
    assert table["rows"] == [[2, 50, 30, 20]]
    assert sum(table["rows"][0][1:]) == STEPS[1].iteration_us


def test_spans_are_cut_at_the_window() -> None:
    assert cut_spans([(0, 5), (8, 12), (20, 30)], 10, 25) == [(10, 12), (20, 25)]
    assert cut_spans([(0, 5)], 10, 25) == []


def test_a_profile_without_the_table_or_with_other_columns_has_no_parts() -> None:
    assert read_step_parts(Profile(Facts("a", "script"))) == {}
    assert read_step_parts(make_profile(["step", "computing"], [1, 2.0])) == {}


def test_rows_with_a_missing_part_are_left_out() -> None:
    columns = ["free", "step", "computing", "communication(not overlapped)"]
    split = read_step_parts(make_profile(columns, [1, 7, 2, 3], [1, 8, "N/A", 3]))
    assert split == {"E2E": [6], "computing": [2], "communication(not overlapped)": [3], "free": [1]}
    assert read_step_parts(make_profile(columns, [1, 8, "N/A", 3])) == {}


def test_what_is_split_is_read_back() -> None:
    table = split_steps(STEPS, [(110, 150)], [])
    assert read_step_parts(Profile(Facts("a", "kineto"), tables={STEP_TRACE_TABLE: table}))["free"] == [
        pytest.approx(60)
    ]
