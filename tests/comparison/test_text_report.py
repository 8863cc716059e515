"""The text that `viaduct compare` prints."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from comparison.drift_sample import ORIGIN, sample_drift, sample_explanation, sample_rows
from viaduct.comparison.records import Explanation
from viaduct.comparison.text_report import (
    MAX_FURTHER,
    describe_explanation,
    make_counts_table,
    make_worst_table,
)

ROWS = sample_rows()
DRIFT = sample_drift(ROWS, sample_explanation(ROWS))


def print_table(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=1000)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_name_in_a_dump_does_not_control_the_terminal() -> None:
    hostile = replace(ROWS[0], result="bad", reason="\x1b]0;owned\x07")
    lines = print_table(make_worst_table(replace(DRIFT, rows=(hostile,), explanation=Explanation("", None)), 5))
    assert "\x1b" not in "".join(lines)
    assert "\\x1b" in "".join(lines)


def test_good_rows_alone_make_no_table_of_the_worst() -> None:
    good = tuple(row for row in ROWS if row.result == "good")
    assert make_worst_table(replace(DRIFT, rows=good, explanation=Explanation("", None)), 10) is None


def test_the_origin_is_the_first_row_of_the_worst_and_is_listed_once() -> None:
    lines = print_table(make_worst_table(DRIFT, len(ROWS)))[1:]
    origin = ROWS[DRIFT.explanation.origin.row_index]
    assert f"{origin.tensor.step}  {origin.tensor_index}" in lines[0]
    assert len(lines) == sum(row.result in ("bad", "refused") for row in ROWS)
    assert len(print_table(make_worst_table(DRIFT, 3))) == 4


def test_every_result_is_counted_even_if_it_is_0() -> None:
    lines = print_table(make_counts_table(replace(DRIFT, rows=())))
    assert [line.split()[:2] for line in lines[1:]] == [
        [result, "0"] for result in ("good", "bad", "flag", "refused", "new")
    ]


def test_only_the_full_explanation_has_evidence_and_advice() -> None:
    short, full = describe_explanation(DRIFT, full=False), describe_explanation(DRIFT, full=True)
    assert "Set eps=1e-5." not in short
    assert "--explain" in short
    assert "what to try       Set eps=1e-5." in full
    assert "likely cause      wrong BN epsilon (92%)" in full
    assert "or perhaps        stale weight (20%)" in full
    assert "Load both from the same checkpoint." not in full, "only the likeliest cause has advice"
    assert f"first divergence  {ROWS[DRIFT.explanation.origin.row_index].tensor_index}" in full
    assert "reads from        layer3.0.conv2" in full


def test_operators_that_only_ran_before_and_after_are_not_said_to_feed_each_other() -> None:
    explanation = replace(DRIFT.explanation, edges=())
    text = describe_explanation(replace(DRIFT, explanation=explanation), full=True)
    assert "ran before it     layer3.0.conv2" in text
    assert "ran after it      layer3.0.relu2" in text
    assert "reads from" not in text


def test_without_a_cause_the_text_says_that_none_fits_and_counts_other_origins() -> None:
    explanation = replace(DRIFT.explanation, causes=(), further=(DRIFT.explanation.origin,) * (MAX_FURTHER + 2))
    text = describe_explanation(replace(DRIFT, explanation=explanation), full=True)
    assert "none of the known ones fits" in text
    assert text.count(f"also by itself    {ORIGIN}") == MAX_FURTHER
    assert "2 more at least" in text
