"""Operators that a compiler fused; each test computes the same numbers fused and not fused."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import FUSION, Array, ComparisonBuilder, convolve, round_to_half, shape_per_channel


class Normed:
    """A convolution and a batch norm behind it, whose mean is large beside its deviation."""

    def __init__(self, relu: bool = False) -> None:
        self.builder = ComparisonBuilder()
        self.relu = relu
        self.x = self.builder.normal(4, 8, 10, 10) + np.float32(1)
        self.weight = self.builder.normal(16, 8, 3, 3)
        self.gamma, self.beta = self.builder.normal(16) + np.float32(2), self.builder.normal(16)
        exact = convolve(self.x, self.weight).astype(np.float64)
        self.mean = exact.mean((0, 2, 3)).astype(np.float32)
        self.slope = (self.gamma / np.sqrt(exact.var((0, 2, 3)) + 1e-5)).astype(np.float32)

    def finish(self, values: Array) -> Array:
        return np.maximum(values, 0) if self.relu else values

    def apart(self, kind: type = np.float32) -> tuple[Array, Array]:
        """One after the other, each result stored in a format."""
        between = convolve(self.x, self.weight).astype(kind)
        normed = (between.astype(np.float32) - shape_per_channel(self.mean)) * shape_per_channel(
            self.slope
        ) + shape_per_channel(self.beta)
        return between, self.finish(normed.astype(kind))

    def fused(self, kind: type = np.float32) -> Array:
        """Fold the norm into the convolution's weight and bias."""
        weight = (self.weight * self.slope.reshape(-1, 1, 1, 1)).astype(kind)
        bias = (self.beta - self.mean * self.slope).astype(np.float32)
        return self.finish((convolve(self.x, weight.astype(np.float32)) + shape_per_channel(bias)).astype(kind))

    def add(self, left: Array, kind: type = np.float32, parts: bool = True) -> ComparisonBuilder:
        between, right = self.apart(kind)
        if parts:
            self.builder.add("conv", self.weight, self.weight, "parameter", parameter="weight", op_type="Conv2d")
            self.builder.add("conv", self.x, self.x, "input", op_type="Conv2d")
        self.builder.add("conv", None, between, op_type="Conv2d")
        self.builder.add("norm", left, right, op_type="BatchNorm2d")
        return self.builder


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_norm_folded_into_a_convolution_is_fusion(kind: type, relu: bool) -> None:
    normed = Normed(relu)
    cause = normed.add(normed.fused(kind), kind).causes()[0]
    assert cause.name == FUSION
    assert "conv of the right side has no tensor on the left" in cause.evidence


def test_a_tensor_that_is_not_rounded_on_the_left_is_fusion() -> None:
    normed = Normed()
    exact = convolve(normed.x, normed.weight)
    left = round_to_half(
        (exact - shape_per_channel(normed.mean)) * shape_per_channel(normed.slope) + shape_per_channel(normed.beta)
    )
    cause = normed.add(left, np.float16).causes()[0]
    assert cause.name == FUSION
    assert "computed through without rounding it" in cause.evidence


def test_fusion_is_found_without_the_layers_input_and_weight() -> None:
    normed = Normed()
    assert normed.add(normed.fused(np.float16), np.float16, parts=False).cause() == FUSION


def test_a_tensor_that_the_right_has_later_is_fusion() -> None:
    builder, x = ComparisonBuilder(), ComparisonBuilder().normal(4, 8, 6, 6)
    raw = builder.normal(4, 16, 6, 6)
    normed = (raw - raw.mean((0, 2, 3), keepdims=True)) / raw.std((0, 2, 3), keepdims=True)
    active = np.maximum(normed, 0)
    builder.add("conv", x, x, "input", order=0)
    builder.add("conv", active, raw, order=0)
    builder.add("norm", active, normed, order=1)
    builder.add("relu", active, active, order=2)
    cause = builder.causes(1)[0]
    assert cause.name == FUSION
    assert "what the right has after relu" in cause.evidence


def drawn_in_story(outputs: bool, parameters: bool) -> ComparisonBuilder:
    """A network whose norm was multiplied into the weight of the convolution before it, as it is dumped."""
    normed, builder = Normed(), ComparisonBuilder()
    between, right = normed.apart()
    weight = (normed.weight * normed.slope.reshape(-1, 1, 1, 1)).astype(np.float32)
    builder.add("conv", weight, normed.weight, "parameter", parameter="weight", order=0)
    if parameters:
        variance = np.square(normed.gamma / normed.slope) - np.float32(1e-5)
        builder.add("norm", None, normed.gamma, "parameter", parameter="weight", order=1)
        builder.add("norm", None, variance, "parameter", index=1, parameter="running_var", order=1)
    if outputs:
        builder.add("conv", normed.fused(), between, order=0)
        builder.add("norm", normed.fused(), right, order=1)
    return builder


@pytest.mark.parametrize(("outputs", "parameters"), [(True, False), (False, True), (True, True)])
def test_a_norm_multiplied_into_a_weight_is_fusion_and_no_old_weight(outputs: bool, parameters: bool) -> None:
    cause = drawn_in_story(outputs, parameters).causes(0, "parameter")[0]
    assert cause.name == FUSION
    assert "a factor a channel" in cause.evidence


def test_a_weight_of_other_channels_sizes_alone_is_no_fusion() -> None:
    builder = drawn_in_story(outputs=False, parameters=False)
    assert FUSION not in [cause.name for cause in builder.causes(0, "parameter")]


def test_a_difference_larger_than_rounding_is_no_fusion() -> None:
    normed = Normed()
    wrong = normed.fused() * np.linspace(0.9, 1.1, 16, dtype=np.float32).reshape(1, -1, 1, 1)
    assert FUSION not in [cause.name for cause in normed.add(wrong).causes()]
