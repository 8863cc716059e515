"""Tensors whose dimensions were read in another order."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import Array, ComparisonBuilder, Layer, convolve


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (1, 0, 2, 3)])
def test_a_transposed_weight_is_a_wrong_layout(order: tuple[int, ...]) -> None:
    builder = ComparisonBuilder()
    weight = builder.normal(8, 8, 3, 3)
    builder.add("conv", np.ascontiguousarray(weight.transpose(order)), weight, "parameter", parameter="weight")
    assert builder.cause(kind="parameter") == "wrong layout"


def test_a_buffer_read_with_the_wrong_shape_is_a_wrong_layout(values: Array) -> None:
    left = values.transpose(0, 2, 3, 1).reshape(values.shape)
    builder = ComparisonBuilder()
    builder.add("op", left, values)
    cause = builder.causes()[0]
    assert cause.name == "wrong layout"
    assert "NHWC" in cause.evidence


def test_a_layer_that_reads_its_kernel_mirrored_is_a_wrong_layout() -> None:
    layer = Layer()
    assert layer.find_cause_of(convolve(layer.x, layer.weight[:, :, ::-1, ::-1])) == "wrong layout"


def test_a_layer_that_reads_its_kernel_transposed_is_a_wrong_layout() -> None:
    layer = Layer(stride=2)
    assert layer.find_cause_of(convolve(layer.x, layer.weight.transpose(0, 1, 3, 2), 2)) == "wrong layout"
