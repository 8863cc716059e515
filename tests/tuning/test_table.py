"""Tables and lines that `viaduct tune` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from tuning.bank_entries import HERE, make_entry
from tuning.in_process import make_operator
from viaduct.tuning.bank import BankContents, FailedPoint, Verdict
from viaduct.tuning.table import (
    TuneReport,
    describe_state,
    encode_banks,
    encode_outcomes,
    list_conclusions,
    list_verdicts,
    make_bank_table,
    make_outcome_table,
)
from viaduct.tuning.tuner import Outcome

VERDICT = Verdict("step shown=resnet50, batch 8 recipe=abc", {}, 10_000.0, 9000.0, 1.111, 9, True)


def list_rows(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*(column.cells for column in table.columns), strict=True))  # type: ignore[arg-type]


def make_report(**changes: Any) -> TuneReport:
    return replace(TuneReport(Path("bank"), HERE, step_us=1000.0, measurements=5, seconds=61.0), **changes)


def test_a_choice_without_a_verdict_is_not_called_installed() -> None:
    assert describe_state(make_entry("a")) == "not installed: no verdict of a whole step yet"
    assert describe_state(make_entry("a", note="the step is slower")) == "the step is slower"
    assert describe_state(make_entry("a", choice={"layout": "as_given"})) == "no better variant found"
    assert describe_state(make_entry("a", installed=True)) == "installed"


def test_a_step_without_gain_says_so() -> None:
    stored = (
        BankContents(HERE).with_verdict(VERDICT).with_verdict(replace(VERDICT, step="other", gain=0.99, is_gain=False))
    )
    assert list(list_verdicts(stored)) == [
        "resnet50, batch 8: 10.00 ms without, 9.00 ms with the choices, 1.11x",
        "other: 10.00 ms without, 9.00 ms with the choices, 0.99x: no gain",
    ]
    assert "Whole step: 10.00 ms without, 9.00 ms with the choices, 0.990x (9 turns): no gain, none is installed." in (
        list_conclusions(make_report(verdict=replace(VERDICT, gain=0.99, is_gain=False)))
    )


def test_the_largest_gain_stands_first() -> None:
    stored = BankContents(HERE).with_entry(make_entry("small", 100, 95)).with_entry(make_entry("large", 100, 50))
    rows = list_rows(make_bank_table(stored))
    assert [row[4] for row in rows] == ["2.00x", "1.05x"]
    assert rows[0][2:4] == ("100", "50")
    (record,) = encode_banks([stored])
    assert [entry["gain"] for entry in record["entries"]] == [pytest.approx(100 / 95), 2.0]


def test_an_operator_without_a_result_has_dashes_and_its_reason() -> None:
    measured = Outcome(make_operator("a"), entry=make_entry("a", 100, 50), default_us=100.0)
    unknown = Outcome(make_operator("b"), note="the budget was spent before a variant was measured")
    rows = list_rows(make_outcome_table([measured, unknown], step_us=1000.0))
    assert rows[0][2:8] == ("1", "10.0%", "100", "50", "2.00x", "layout=contiguous")
    assert rows[1][3:] == ("-", "-", "-", "-", "default", "the budget was spent before a variant was measured")


def test_failures_and_a_busy_machine_are_reported_below_the_table() -> None:
    outcome = Outcome(
        make_operator("a"), search_result=make_entry("a", failed=(FailedPoint({"tile": 8, "fast": False}, "crashed"),))
    )
    lines = list_conclusions(make_report(outcomes=[outcome], other_load=0.5, reused=2))
    assert lines[0] == "Discarded tile=8: crashed"
    assert lines[1].startswith("Other programs used 50% of the processors")
    assert lines[2] == "5 measurements in 61 s, 2 taken over from an interrupted search. Bank: bank"
    quiet = list_conclusions(make_report(result_file=Path("tune_result.json")))
    assert quiet == ["5 measurements in 61 s. Bank: bank", "Result file: tune_result.json"]


def test_the_json_of_a_run_has_every_operator() -> None:
    outcome = Outcome(make_operator("a"), entry=make_entry("a", 100, 50), default_us=100.0)
    record = json.loads(json.dumps(encode_outcomes(make_report(outcomes=[outcome], signal=2, verdict=VERDICT))))
    (operator,) = record["operators"]
    assert (operator["names"], operator["share"], operator["entry"]["best_us"]) == (["layer.a"], 0.1, 50)
    assert (record["interrupted_by"], record["verdict"]["gain"], record["result_file"]) == (2, 1.111, None)
