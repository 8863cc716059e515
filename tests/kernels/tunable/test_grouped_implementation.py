"""The choice between our kernels and the library for grouped convolutions."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_tunable import CPU, Key, find_wrong_points, list_keys, measure_errors
from viaduct.kernels.tunable import make_space
from viaduct.kernels.tunable.grouped_implementation import TUNABLES


@pytest.mark.parametrize("key", list_keys(*(tunable.kernel for tunable in TUNABLES)), ids=str)
def test_where_there_is_no_card_either_choice_is_computed_by_the_library(key: Key) -> None:
    errors = measure_errors(key, CPU, 1, random.Random())
    assert find_wrong_points(errors) == {}
    assert len(errors) == 4  # allowed; without a choice, and both implementations


@pytest.mark.parametrize(
    ("direction", "per_group", "stride", "count", "implementation"),
    [
        ("forward", 4, 1, 32, "own"),
        ("forward", 32, 1, 32, "library"),
        ("forward", 32, 2, 32, "own"),
        ("weight", 16, 1, 1, "library"),
        ("weight", 16, 1, 64, "own"),
        ("input", 16, 1, 1, "own"),
    ],
)
def test_the_default_is_what_was_faster_on_an_h200(
    direction: str, per_group: int, stride: int, count: int, implementation: str
) -> None:
    signature = (count, 28, 28, 32 * per_group, per_group, stride, 0, 1, "bfloat16")
    space = make_space((f"grouped_{direction}_implementation", signature), CPU)
    assert (space.default, space.size) == ({"implementation": implementation}, 2)
