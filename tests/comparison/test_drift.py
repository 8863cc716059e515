"""Comparison of two dumps from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder
from comparison.sample_dumps import side, tensor
from viaduct.comparison.drift import Drift, Options, choose_missing_result, compare, require_same_level, select_pairs
from viaduct.comparison.naming import parse_steps
from viaduct.comparison.records import Explanation, Pair, Row, StoredTensor
from viaduct.errors import BadData, BadValue

ONES = np.ones(4, np.float32)


def drift_of(*rows: Row) -> Drift:
    return Drift(side([]), side([]), rows, Explanation("", None), Options())


def pair_of(op: str, step: int = 0, **more: str) -> Pair:
    stored = tensor(op, step=step, **more)
    return Pair(0, stored, stored, op, op, "name")


def test_nothing_that_was_not_compared_counts_as_good() -> None:
    builder = ComparisonBuilder()
    good, bad = builder.add("a", ONES, ONES), builder.add("b", 2 * ONES, ONES)
    refused = builder.add("c", None, ONES)
    new = Row(Pair(0, StoredTensor("d"), None, "d", "*", "none"), None, "new")
    assert drift_of().exit_code == 2
    assert drift_of(refused, new).exit_code == 2
    assert drift_of(good, refused).exit_code == 1
    assert drift_of(good, bad).exit_code == 1
    assert drift_of(good, new).exit_code == 0


def test_operators_are_not_compared_with_modules() -> None:
    ours, theirs = side([], settings={"level": "op"}), side([], settings={"level": "module"})
    with pytest.raises(BadValue, match=r"operators \(level op\).*modules \(level module\)"):
        require_same_level(ours, theirs)
    require_same_level(ours, ours)
    require_same_level(ours, side([]))


def test_a_selection_without_a_pair_is_refused_with_what_there_is() -> None:
    pairs = [pair_of("conv1", step=5), pair_of("fc", step=7)]
    with pytest.raises(BadValue, match=r"no step 3[\s\S]*5, 7"):
        select_pairs(pairs, Options(steps=parse_steps("3")))
    with pytest.raises(BadValue, match=r"'bn\*'[\s\S]*'conv1'"):
        select_pairs(pairs, Options(only="bn*"))
    with pytest.raises(BadData, match="hold no tensors"):
        select_pairs([], Options())


def test_pairs_are_selected_by_step_name_and_tensor() -> None:
    pairs = [pair_of("conv1", step=5), pair_of("fc", step=7), pair_of("fc", step=7, role="input")]
    assert select_pairs(pairs, Options(steps=parse_steps("7"))) == pairs[1:]
    assert select_pairs(pairs, Options(only="conv*, fc:input:0")) == [pairs[0], pairs[2]]
    half = Pair(0, None, tensor("conv1", step=6), "*", "conv1", "none")
    assert select_pairs([*pairs, half], Options(steps=parse_steps("6"))) == [half]


def test_selected_steps_and_names_that_are_not_there_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "left.npz", conv1=ONES)
    np.savez(tmp_path / "right.npz", conv1=ONES)
    options = Options(steps=parse_steps("0,3-5"), only="conv*,layer9.*")
    drift = compare(tmp_path / "left.npz", tmp_path / "right.npz", options)
    assert drift.exit_code == 0
    assert drift.notes == (
        "step 3-5: the dumps hold none of the selected tensors",
        "no operator is called like 'layer9.*'",
    )


def test_a_damaged_tensor_of_an_inserted_operator_is_refused() -> None:
    assert choose_missing_result(Pair(0, StoredTensor("a"), None, "a", "*", "none")) == "new"
    assert choose_missing_result(Pair(0, StoredTensor("a", fault="cut short"), None, "a", "*", "none")) == "refused"
    assert choose_missing_result(Pair(0, StoredTensor("a"), None, "a", "a", "none")) == "refused"


def test_a_tensor_that_differs_is_found_in_two_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "left.npz", same=ONES, other=2 * ONES)
    np.savez(tmp_path / "right.npz", same=ONES, other=ONES)
    seen = []
    drift = compare(
        tmp_path / "left.npz", tmp_path / "right.npz", Options(), lambda measured, count: seen.append(count) or measured
    )
    assert {row.op: row.result for row in drift.rows} == {"same": "good", "other": "bad"}
    assert (drift.exit_code, seen) == (1, [2])
