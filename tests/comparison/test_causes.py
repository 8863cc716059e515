"""Every cause is named when it is there, and not when it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from comparison.causes.test_amplifying_structure import AMPLIFIERS, add_jitter
from comparison.causes.test_constant_folding import make_scaled_story, make_standardised_story
from comparison.causes.test_operator_fusion import Normed
from comparison.comparison_builder import (
    AMPLIFYING,
    COMPILER_CAUSES,
    FOLDING,
    FUSION,
    Array,
    ComparisonBuilder,
    name_cause_of_output,
)
from viaduct.comparison.causes import list_causes
from viaduct.comparison.records import Role


def test_every_file_is_a_cause_with_a_name() -> None:
    assert {"overflow", "layout", "padding", "dropout", "labels"} <= set(list_causes())
    for name in list_causes():
        module = __import__(f"viaduct.comparison.causes.{name}", fromlist=["NAME"])
        assert module.NAME
        assert module.find_cause.__doc__ or module.__doc__


SHAPES: list[tuple[int, ...]] = [(), (1,), (5,), (0,), (2, 0), (1, 1), (3, 4), (2, 3, 4), (2, 3, 1, 1), (2, 3, 5, 4)]
SHAPES += [(1, 2, 2, 2, 2), (1,) * 9]


@pytest.mark.parametrize("role", get_args(Role))
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "complex64"])
def test_no_shape_dtype_or_role_makes_a_cause_fail(role: Role, dtype: str) -> None:
    for shape in SHAPES:
        for op_type in ("Conv2d", "BatchNorm2d"):
            builder = ComparisonBuilder()
            left, right = ((4 * builder.normal(*shape)).astype(dtype) for _ in range(2))
            for step in (0, 1):
                builder.add("op", right, right, "parameter", parameter="weight", op_type=op_type, step=step)
                builder.add("op", right, right, "input", op_type=op_type, step=step)
            builder.add("op", left, right, role, op_type=op_type, step=1, parameter="weight")
            builder.causes()  # fails where one of them did


def test_a_cause_that_fails_is_reported_and_the_others_are_examined(
    values: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(divergence: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr("viaduct.comparison.causes.shuffle.find_cause", stumble)
    left = values.copy()
    left[0, 3, 2, 2] = np.inf
    builder = ComparisonBuilder()
    builder.add("op", left, values)
    explanation = builder.explain()
    assert explanation.cause == "overflow"
    assert "shuffle" in explanation.notes[0]
    assert "IndexError" in explanation.notes[0]


def test_noise_has_no_known_cause(values: Array) -> None:
    noise = np.random.default_rng(7).standard_normal(values.shape).astype(np.float32)
    assert name_cause_of_output(values + 0.5 * noise, values) is None


STORIES: dict[str, tuple[str, Callable[[], ComparisonBuilder]]] = {
    "fused in float16": (FUSION, lambda: Normed().add(Normed().fused(np.float16), np.float16)),
    "fused in float32": (FUSION, lambda: Normed().add(Normed().fused())),
    "folded weight": (FOLDING, make_standardised_story),
    "folded factor": (FOLDING, make_scaled_story),
    **{f"amplified by {name}": (AMPLIFYING, builder) for name, builder in AMPLIFIERS.items()},
}


@pytest.mark.parametrize("name", STORIES)
def test_no_other_cause_of_a_compiler_is_named(name: str) -> None:
    expected, builder = STORIES[name]
    assert [cause.name for cause in builder().causes() if cause.name in COMPILER_CAUSES] == [expected]


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_cause_of_a_compiler(seed: int, values: Array) -> None:
    builder = ComparisonBuilder()
    builder.add("op", add_jitter(values, 0.05, seed), values)
    assert not [cause.name for cause in builder.causes() if cause.name in COMPILER_CAUSES]
