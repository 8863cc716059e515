"""drift.csv: exact columns, safe in a spreadsheet, nothing left out."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder
from viaduct.comparison.records import Row
from viaduct.comparison.table import make_csv

SPECIFIED = [
    *("Index", "OpType", "LeftOp", "LeftDtype", "RightOp", "RightDtype", "TensorIndex", "Shape", "OverFlow"),
    *("CosineSimilarity", "MaxAbsoluteError", "AccumulatedRelativeError", "RelativeEuclideanDistance"),
    *("KullbackLeiblerDivergence", "StandardDeviation", "MeanAbsoluteError", "RootMeanSquareError"),
    *("MaxRelativeError", "MeanRelativeError", "Result", "CompareFailReason"),
]


def rows_of(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode(), newline="")))


def builder() -> ComparisonBuilder:
    seen = ComparisonBuilder()
    values = seen.normal(2, 3)
    seen.add("conv1", values, values, op_type="Conv2d")
    return seen


def test_the_columns_are_the_specified_ones_in_their_order() -> None:
    head = make_csv(builder().rows).split(b"\r\n")[0].decode()
    assert head.split(",") == SPECIFIED


def test_a_good_row_has_every_measure_with_six_decimals() -> None:
    (row,) = rows_of(make_csv(builder().rows))
    assert row["TensorIndex"] == "conv1:output:0"
    assert row["Shape"] == "[2,3]"
    assert row["CosineSimilarity"] == "1.000000"
    assert row["RelativeEuclideanDistance"] == "0.000000"
    assert row["Result"] == "good"
    assert row["CompareFailReason"] == ""


def test_a_row_without_measures_says_nan_and_why() -> None:
    seen = ComparisonBuilder()
    seen.add("conv1", None, seen.normal(2, 3))
    (row,) = rows_of(make_csv(seen.rows))
    assert row["CosineSimilarity"] == row["MeanRelativeError"] == row["OverFlow"] == "NaN"
    assert row["Result"] == "refused"
    assert row["CompareFailReason"]


def test_several_steps_are_distinguished_by_columns_at_the_end() -> None:
    seen = builder()
    seen.add("conv1", seen.normal(2), seen.normal(2), step=5, rank=1)
    text = make_csv(seen.rows)
    assert text.split(b"\r\n")[0].decode().split(",") == [*SPECIFIED, "Step", "Rank"]
    assert [(row["Step"], row["Rank"]) for row in rows_of(text)] == [("0", "0"), ("5", "1")]


def rename_row(row: Row, name: str) -> Row:
    left = row.pair.left
    assert left is not None
    return replace(row, pair=replace(row.pair, left=replace(left, op=name), left_op=name))


@pytest.mark.parametrize("name", ["=1+1", "@SUM(A1)", "+cmd|'/c calc'!A0", "-2+3", "\tx", "\rx"])
def test_no_name_becomes_a_formula(name: str) -> None:
    (row,) = rows_of(make_csv([rename_row(builder().rows[0], name)]))
    assert row["LeftOp"] == f"'{name}"
    assert row["TensorIndex"].startswith("'")


@pytest.mark.parametrize("name", ['a"b', "a,b", "a\nb", "层.卷积", "a;b"])
def test_any_other_name_survives_the_round_trip(name: str) -> None:
    (row,) = rows_of(make_csv([rename_row(builder().rows[0], name)]))
    assert row["LeftOp"] == name


def test_what_a_bad_row_follows_from_is_in_its_reason() -> None:
    seen = ComparisonBuilder()
    seen.add("a", np.ones(4, np.float32), np.arange(4, dtype=np.float32))
    row = replace(seen.rows[0], follows_from="conv1")
    assert rows_of(make_csv([row]))[0]["CompareFailReason"].endswith("; follows from conv1")


def test_control_characters_in_the_table_are_escaped() -> None:
    row = replace(builder().rows[0], reason="\x1b]0;title\x07\x9b2J")
    text = make_csv([row])
    assert b"\\x1b]0;title\\x07\\x9b2J" in text
    assert b"\x1b" not in text
