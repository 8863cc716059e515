"""Data types of the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from viaduct.comparison.align import ROLE_ORDER
from viaduct.comparison.measures import measure
from viaduct.comparison.records import RESULTS, SEVERITY, Pair, Result, Role, Row, StoredTensor, count_results


def test_a_refused_row_is_not_compared_even_with_measures() -> None:
    nothing_finite = measure(np.full(3, np.nan), np.full(3, np.nan))
    pair = Pair(0, StoredTensor("a"), StoredTensor("a"), "a", "a", "name")
    assert not Row(pair, nothing_finite, "refused").is_compared
    assert not Row(pair, None, "new").is_compared
    assert Row(pair, measure(np.ones(3), np.ones(3)), "flag").is_compared


def test_a_row_without_a_left_tensor_has_the_name_of_the_right_one() -> None:
    right = StoredTensor("conv", role="input", index=2, path=Path("conv.npy"))
    row = Row(Pair(0, None, right, "*", "conv", "none"), None, "new")
    assert (row.op, row.tensor_index) == ("conv", "conv:input:2")
    with pytest.raises(ValueError, match="without either side"):
        _ = Row(Pair(0, None, None, "", "", "none"), None, "new").tensor


def test_results_that_do_not_occur_are_counted_as_0() -> None:
    pair = Pair(0, StoredTensor("a"), None, "a", "*", "none")
    counts = count_results([Row(pair, None, "new"), Row(pair, None, "new")])
    assert counts == {"good": 0, "bad": 0, "flag": 0, "refused": 0, "new": 2}


def test_a_tensor_is_shown_with_operator_role_and_number() -> None:
    assert StoredTensor("layer1.conv", role="input", index=2).tensor_index == "layer1.conv:input:2"


def test_every_role_has_a_place_in_execution_order_and_every_result_a_severity() -> None:
    assert sorted(ROLE_ORDER) == sorted(get_args(Role))
    assert sorted(SEVERITY) == sorted(RESULTS) == sorted(get_args(Result))
