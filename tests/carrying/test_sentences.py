"""Sentences about the largest difference, and about what is not compared."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from carrying.sample_carries import diff, make_sides
from carrying.sample_observations import make_observation
from viaduct.carrying.agreement import judge, pair_observations
from viaduct.carrying.sentences import describe_worst, list_compared_remarks, list_uncompared_remarks


def test_the_largest_difference_is_among_what_is_judged() -> None:
    wild = {"gradients": {"w": np.ones(4, np.float32), "b": np.array([1e-9, 0], np.float32)}}
    shaken = {"gradients": {"w": np.full(4, 1 + 1e-6, np.float32), "b": np.array([-1e-9, 1e-9], np.float32)}}
    found = judge(
        pair_observations(make_observation(**wild), make_observation(**shaken)),
        pair_observations(make_observation(**wild), make_observation(**shaken)),
    )
    assert found.verdict == "rounding"
    assert "difference 9.5e-07, where" in describe_worst(found.informative_pairs("gradient"))
    assert "1 of 2 gradients of the first step is mostly rounding" in found.remarks[0]


def test_what_has_no_measure_is_not_called_inf() -> None:
    found = judge(
        pair_observations(
            make_observation(), make_observation(weights={"w": np.ones(4, np.float32), "steps": np.array(9)})
        )
    )
    assert math.isinf(found.bad[0].error)
    assert describe_worst(found.informative_pairs("weight")) == (
        ", 1 without a relative measure (from zero, not finite, or whole numbers: steps)"
    )


@pytest.mark.parametrize(("lang", "expected"), [("en", "run.sh; conf.yaml."), ("zh", "run.sh; conf.yaml.")])
def test_changed_files_whose_lines_are_not_counted_are_named(tmp_path: Path, lang: str, expected: str) -> None:
    sides = make_sides(tmp_path, "a = 1\n", "a = 2\n")
    result: Any = SimpleNamespace(
        agreement=judge([]), sides=sides, request=SimpleNamespace(lang=lang), framework="torch", written_files=[]
    )
    assert len(list_uncompared_remarks(result)) == 1
    sides.diffs |= {"run.sh": diff("a\n", "b\n"), "conf.yaml": diff("a\n", "b\n"), "lib.py": diff("a\n", "b\n")}
    (_, text) = list_uncompared_remarks(result)[1]
    assert text.endswith(expected)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["equal", "equal"], "2 written files."),
        (["equal", "rounding", "not compared"], "2 written files, within rounding: f1."),
        (["rounding"] * 4, "4 written files, within rounding: f0, f1, f2 and more."),
    ],
)
def test_a_written_file_within_rounding_is_named(states: list[str], expected: str) -> None:
    result: Any = SimpleNamespace(
        agreement=judge([]),
        further_results=SimpleNamespace(evaluations=0, compared=0),
        written_files=[SimpleNamespace(name=f"f{index}", state=state) for index, state in enumerate(states)],
    )
    [(_, text)] = list_compared_remarks(result)
    assert text.endswith(f"; {expected}")
