"""summary.json: the result of a comparison for other programs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.drift_sample import ORIGIN, sample_drift, sample_explanation, sample_rows
from comparison.test_curves import falling, write_run
from viaduct.comparison.curves import compare_curves
from viaduct.comparison.drift import Options
from viaduct.comparison.records import Explanation
from viaduct.comparison.summary import describe_thresholds, encode_nonfinite, make_curve_summary, make_summary
from viaduct.comparison.thresholds import Thresholds

ROWS = sample_rows()
DRIFT = sample_drift(ROWS, sample_explanation(ROWS))


def test_where_nothing_was_compared_the_verdict_is_not_good() -> None:
    refused = [row for row in ROWS if row.result == "refused"]
    summary = make_summary(replace(DRIFT, rows=tuple(refused), explanation=Explanation("nothing", None)))
    assert (summary["verdict"], summary["origin"], summary["where"]) == ("nothing compared", None, None)


def test_the_origin_comes_with_its_tensor_cause_and_measures() -> None:
    summary = make_summary(DRIFT)
    assert (summary["verdict"], summary["origin"], summary["cause"]) == ("bad", ORIGIN, "wrong BN epsilon")
    where = summary["where"]
    row = ROWS[DRIFT.explanation.origin.row_index]
    assert (where["op"], where["tensor"], where["result"]) == (ORIGIN, row.tensor_index, "bad")
    assert where["measures"]["max_absolute"] == row.measures.max_absolute
    assert sum(summary["counts"].values()) == len(ROWS)


def test_numbers_that_json_does_not_have_become_texts() -> None:
    assert encode_nonfinite({"a": math.nan, "b": {"c": -math.inf}, "d": 1, "e": None}) == {
        "a": "NaN",
        "b": {"c": "-Inf"},
        "d": 1,
        "e": None,
    }
    row = DRIFT.explanation.origin.row_index
    rows = list(ROWS)
    rows[row] = replace(rows[row], measures=replace(rows[row].measures, cosine=math.nan, max_absolute=math.inf))
    summary = make_summary(replace(DRIFT, rows=tuple(rows)))
    json.dumps(summary, allow_nan=False)
    assert summary["where"]["measures"]["cosine"] == "NaN"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (Options(), "defaults"),
        (Options(thresholds=Thresholds(cosine=0.9)), "given"),
        (Options(thresholds=Thresholds(cosine=0.9), threshold_source="16 times the drift"), "measured"),
    ],
)
def test_the_summary_says_where_the_thresholds_come_from(options: Options, kind: str) -> None:
    assert list(describe_thresholds(options)) == [kind]


def test_a_loss_that_becomes_nan_does_not_break_the_summary(tmp_path: Path) -> None:
    losses = falling(0)
    broken = losses.copy()
    broken[100:] = math.nan
    curves = compare_curves(write_run(tmp_path / "left", broken), write_run(tmp_path / "right", losses))
    summary = make_curve_summary(curves)
    json.dumps(summary, allow_nan=False)
    assert summary["verdict"] == "bad"
    assert summary["curves"]["parting"]["left"] == "NaN"
