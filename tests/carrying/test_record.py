"""carry.json: the result of a carry, for programs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from carrying.failed_runs import make_failed_run
from carrying.sample_carries import make_carry_result
from viaduct.carrying.agreement import ValuePair, judge
from viaduct.carrying.causes import Explanation
from viaduct.carrying.record import describe_fault, describe_pair, list_runs, write
from viaduct.carrying.suspects import Suspect


def test_a_run_that_failed_leaves_a_record_with_its_fault_and_without_numbers_that_json_lacks(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN"], "FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'")
    write(make_carry_result(tmp_path, run), tmp_path / "carry.json")
    record = json.loads((tmp_path / "carry.json").read_text(), parse_constant=pytest.fail)
    assert (record["verdict"], record["exit_code"], record["bitwise"]) == ("could not run", 2, False)
    assert (record["fault"]["side"], record["fault"]["whose"]) == ("original", "file")
    assert list(record["runs"]) == ["original"], "the base is the original here: one run"
    assert (record["pairs"], record["first_difference"], record["speed"]) == ([], None, None)


def test_a_difference_is_recorded_with_its_pair_and_suspects(tmp_path: Path) -> None:
    original = replace(make_failed_run(tmp_path, ["OWN"], ""), name="original")
    migrated = replace(original, name="migrated")
    pairs = [ValuePair("loss", "loss", 0, 0, 1.0, math.nan, math.inf), ValuePair("loss", "loss", 0, 1, 1.0, 1.0, 0.0)]
    suspect = Suspect("train.py", 3, "lr = 1", "lr = 2", "a number changed", 15)
    result = make_carry_result(
        tmp_path,
        original,
        verdict="differs",
        migrated=migrated,
        agreement=judge(pairs),
        suspects=[suspect],
        explanation=Explanation("the losses differ", module="layer1"),
    )
    path = tmp_path / "carry.json"
    write(result, path)
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (record["verdict"], record["exit_code"], record["fault"]) == ("differs", 1, None)
    assert record["module"] == "layer1"
    assert record["suspects"][0]["place"] == "train.py:3"
    assert record["first_difference"]["bad"] is True
    assert [pair["same"] for pair in record["pairs"]] == [False, True]
    assert list(record["runs"]) == ["original", "migrated"]


def test_where_a_limit_was_met_no_run_is_at_fault(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, [], "", steps=2)
    finished = replace(run, summary=replace(run.summary, script_exit_code=0))
    result = make_carry_result(tmp_path, finished, migrated=replace(finished, name="migrated"))
    assert describe_fault(result) == {"side": "migrated", "whose": "limit"}
    assert describe_fault(replace(result, verdict="agrees")) is None


def test_a_run_that_is_named_twice_is_listed_once(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, [], "")
    result = make_carry_result(tmp_path, run, migrated=replace(run, name="migrated"))
    assert [item.name for item in list_runs(result)] == ["original", "migrated"]


def test_nan_and_infinity_of_a_pair_become_null_and_other_values_stay() -> None:
    described = describe_pair(ValuePair("weight", "w", 0, None, math.nan, 1.5, math.inf))
    assert (described["left"], described["right"], described["error"], described["step"]) == (None, 1.5, None, None)
