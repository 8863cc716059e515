"""Tensors and layers in 8 bits; the values are really quantised."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import (
    COMPILER_CAUSES,
    INT8,
    Array,
    ComparisonBuilder,
    Layer,
    convolve,
    name_cause_of_output,
)
from viaduct.comparison.grids import BFLOAT16, FLOAT16


def quantise(values: Array, axes: tuple[int, ...] | None = None) -> Array:
    """To int8 and back."""
    scale = np.max(np.abs(values), axis=axes, keepdims=True) / 127
    return (np.clip(np.rint(values / scale), -128, 127).astype(np.int8) * scale).astype(np.float32)


def test_an_output_stored_in_int8_is_reported_with_its_levels(values: Array) -> None:
    builder = ComparisonBuilder()
    builder.add("op", quantise(values), values)
    cause = builder.causes()[0]
    assert cause.name == INT8
    assert "levels" in cause.evidence


def test_an_output_behind_a_relu_in_uint8_is_reported_too(values: Array) -> None:
    right = np.maximum(values, 0)
    scale = right.max() / 255
    left = (np.rint(right / scale).astype(np.uint8) * scale).astype(np.float32)
    assert name_cause_of_output(left, right) == INT8


def test_a_weight_in_int8_by_channel_is_reported() -> None:
    builder = ComparisonBuilder()
    weight = builder.normal(32, 16, 3, 3) * np.linspace(0.1, 4, 32, dtype=np.float32).reshape(-1, 1, 1, 1)
    builder.add("conv", quantise(weight, (1, 2, 3)), weight, "parameter", parameter="weight")
    cause = builder.causes(kind="parameter")[0]
    assert cause.name == INT8
    assert "channels" in cause.evidence


@pytest.mark.parametrize("what", ["both", "weight", "by channel"])
def test_a_layer_that_computes_in_int8_is_reported(what: str) -> None:
    layer = Layer()
    weight = quantise(layer.weight, (1, 2, 3) if what == "by channel" else None)
    x = quantise(layer.x) if what == "both" else layer.x
    assert layer.find_cause_of(convolve(x, weight)) == INT8


def test_saturated_values_do_not_hide_the_levels(values: Array) -> None:
    scale = np.float32(2.5 / 127)
    left = (np.clip(np.rint(values / scale), -128, 127) * scale).astype(np.float32)
    assert name_cause_of_output(left, values) == INT8


@pytest.mark.parametrize("step", [1 / 16, 1 / 4, 0.1])
def test_rounding_to_a_step_is_no_half_precision_reduction(values: Array, step: float) -> None:
    builder = ComparisonBuilder()
    builder.add("op", (np.rint(values / step) * step).astype(np.float32), values)
    names = [cause.name for cause in builder.causes()]
    assert "half-precision reduction" not in names
    assert "reduced precision" not in names


def test_more_levels_than_eight_bits_have_are_no_int8(values: Array) -> None:
    builder = ComparisonBuilder()
    builder.add("op", (np.rint(values * 100) / 100).astype(np.float32), values)
    assert builder.cause() not in (INT8, "half-precision reduction")


@pytest.mark.parametrize("grid", [FLOAT16, BFLOAT16])
def test_a_narrow_range_in_half_precision_is_no_int8(grid: object, values: Array) -> None:
    right = np.abs(values) % 1 + np.float32(1)  # between 1 and 2 the steps of a half format are equal
    left = grid.round(right.astype(np.float64)).astype(np.float32)  # type: ignore[attr-defined]
    assert name_cause_of_output(left, right) == "reduced precision"


@pytest.mark.parametrize("what", ["output", "layer", "weight"])
def test_int8_has_no_other_cause_of_a_compiler(what: str, values: Array) -> None:
    if what == "layer":
        layer = Layer()
        layer.builder.add("conv", convolve(quantise(layer.x), quantise(layer.weight)), layer.right())
        builder = layer.builder
    else:
        builder = ComparisonBuilder()
        builder.add("op", quantise(values), values, "parameter" if what == "weight" else "output")
    assert [cause.name for cause in builder.causes() if cause.name in COMPILER_CAUSES] == [INT8]
