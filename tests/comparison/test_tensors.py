"""Data types of the comparison."""

from __future__ import annotations

from typing import get_args

from viaduct.comparison.align import ROLES
from viaduct.comparison.rows import RESULTS, SEVERITY
from viaduct.comparison.tensors import Result, Role, StoredTensor


def test_a_tensor_is_shown_with_operator_role_and_number() -> None:
    assert StoredTensor("layer1.conv", role="input", index=2).tensor_index == "layer1.conv:input:2"


def test_every_role_has_a_place_in_execution_order_and_every_result_a_severity() -> None:
    assert sorted(ROLES) == sorted(get_args(Role))
    assert sorted(SEVERITY) == sorted(RESULTS) == sorted(get_args(Result))
