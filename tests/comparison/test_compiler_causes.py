"""Causes that a compiler brings in: fusion, folded constants, 8 bits; and structures that enlarge what came in.

The tensors are made by really doing it: the same numbers are computed in two ways.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comparison.scenes import Array, Story
from comparison.test_causes import Layer, convolved, norm_story, of_output
from viaduct.comparison.grids import BFLOAT16, FLOAT16

FUSION, FOLDING, INT8, AMPLIFYING = "operator fusion", "constant folding", "int8 quantisation", "amplifying structure"
NEW = (FUSION, FOLDING, INT8, AMPLIFYING)


def half(values: Array) -> Array:
    return values.astype(np.float16)


def per_channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


# ---- fusion


class Normed:
    """A convolution and a batch norm behind it, whose mean is large beside its deviation."""

    def __init__(self, relu: bool = False) -> None:
        self.story = Story()
        self.relu = relu
        self.x = self.story.normal(4, 8, 10, 10) + np.float32(1)
        self.weight = self.story.normal(16, 8, 3, 3)
        self.gamma, self.beta = self.story.normal(16) + np.float32(2), self.story.normal(16)
        exact = convolved(self.x, self.weight).astype(np.float64)
        self.mean = exact.mean((0, 2, 3)).astype(np.float32)
        self.slope = (self.gamma / np.sqrt(exact.var((0, 2, 3)) + 1e-5)).astype(np.float32)

    def finish(self, values: Array) -> Array:
        return np.maximum(values, 0) if self.relu else values

    def apart(self, kind: type = np.float32) -> tuple[Array, Array]:
        """One after the other, each result stored in a format."""
        between = convolved(self.x, self.weight).astype(kind)
        normed = (between.astype(np.float32) - per_channel(self.mean)) * per_channel(self.slope) + per_channel(
            self.beta
        )
        return between, self.finish(normed.astype(kind))

    def fused(self, kind: type = np.float32) -> Array:
        """As one convolution: the norm in its weight and bias."""
        weight = (self.weight * self.slope.reshape(-1, 1, 1, 1)).astype(kind)
        bias = (self.beta - self.mean * self.slope).astype(np.float32)
        return self.finish((convolved(self.x, weight.astype(np.float32)) + per_channel(bias)).astype(kind))

    def tell(self, left: Array, kind: type = np.float32, parts: bool = True) -> Story:
        between, right = self.apart(kind)
        if parts:
            self.story.tell("conv", self.weight, self.weight, "parameter", parameter="weight", op_type="Conv2d")
            self.story.tell("conv", self.x, self.x, "input", op_type="Conv2d")
        self.story.tell("conv", None, between, op_type="Conv2d")
        self.story.tell("norm", left, right, op_type="BatchNorm2d")
        return self.story


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_norm_drawn_into_a_convolution_is_fusion(kind: type, relu: bool) -> None:
    normed = Normed(relu)
    cause = normed.tell(normed.fused(kind), kind).causes()[0]
    assert cause.name == FUSION
    assert "conv of the right side has no tensor on the left" in cause.evidence


def test_a_tensor_that_is_only_never_rounded_is_fusion_and_computed_through() -> None:
    normed = Normed()
    exact = convolved(normed.x, normed.weight)
    left = half((exact - per_channel(normed.mean)) * per_channel(normed.slope) + per_channel(normed.beta))
    cause = normed.tell(left, np.float16).causes()[0]
    assert cause.name == FUSION
    assert "computed through without rounding it" in cause.evidence


def test_fusion_is_told_without_the_layers_input_and_weight_too() -> None:
    normed = Normed()
    assert normed.tell(normed.fused(np.float16), np.float16, parts=False).cause() == FUSION


def test_a_tensor_that_the_right_has_later_is_fusion() -> None:
    story, x = Story(), Story().normal(4, 8, 6, 6)
    raw = story.normal(4, 16, 6, 6)
    normed = (raw - raw.mean((0, 2, 3), keepdims=True)) / raw.std((0, 2, 3), keepdims=True)
    active = np.maximum(normed, 0)
    story.tell("conv", x, x, "input", order=0)
    story.tell("conv", active, raw, order=0)
    story.tell("norm", active, normed, order=1)
    story.tell("relu", active, active, order=2)
    cause = story.causes(1)[0]
    assert cause.name == FUSION
    assert "what the right has after relu" in cause.evidence


def drawn_in_story(outputs: bool, parameters: bool) -> Story:
    """A network whose norm was multiplied into the weight of the convolution before it, as it is dumped."""
    normed, story = Normed(), Story()
    between, right = normed.apart()
    weight = (normed.weight * normed.slope.reshape(-1, 1, 1, 1)).astype(np.float32)
    story.tell("conv", weight, normed.weight, "parameter", parameter="weight", order=0)
    if parameters:
        variance = np.square(normed.gamma / normed.slope) - np.float32(1e-5)
        story.tell("norm", None, normed.gamma, "parameter", parameter="weight", order=1)
        story.tell("norm", None, variance, "parameter", index=1, parameter="running_var", order=1)
    if outputs:
        story.tell("conv", normed.fused(), between, order=0)
        story.tell("norm", normed.fused(), right, order=1)
    return story


@pytest.mark.parametrize(("outputs", "parameters"), [(True, False), (False, True), (True, True)])
def test_a_norm_multiplied_into_a_weight_is_fusion_and_no_old_weight(outputs: bool, parameters: bool) -> None:
    cause = drawn_in_story(outputs, parameters).causes(0, "parameter")[0]
    assert cause.name == FUSION
    assert "a factor a channel" in cause.evidence


def test_a_weight_of_other_channels_sizes_alone_is_no_fusion() -> None:
    story = drawn_in_story(outputs=False, parameters=False)
    assert FUSION not in [cause.name for cause in story.causes(0, "parameter")]


def test_a_difference_larger_than_rounding_is_no_fusion() -> None:
    normed = Normed()
    wrong = normed.fused() * np.linspace(0.9, 1.1, 16, dtype=np.float32).reshape(1, -1, 1, 1)
    assert FUSION not in [cause.name for cause in normed.tell(wrong).causes()]


# ---- constant folding


def standardised(weight: Array, kind: type) -> Array:
    """Weight standardisation, every operation rounded to a format."""
    values = weight.astype(kind)
    mean = values.mean((1, 2, 3), keepdims=True, dtype=kind)
    spread = np.sqrt(np.square((values - mean).astype(kind)).mean((1, 2, 3), keepdims=True, dtype=kind) + kind(1e-5))
    return np.asarray((values - mean).astype(kind) / spread.astype(kind)).astype(kind)


def standardised_story() -> Story:
    """A convolution with a standardised weight: made as the right runs, in half precision, and once on the left."""
    story = Story()
    x, weight = story.normal(4, 8, 12, 12), story.normal(16, 8, 3, 3)
    made, folded = standardised(weight, np.float16), standardised(weight, np.float64)
    story.tell("standardise", weight, weight, "parameter", parameter="weight", order=0)
    story.tell("standardise", None, made, order=0)
    story.tell("conv", x, x, "input", order=1, op_type="Conv2d")
    story.tell("conv", convolved(x, folded), convolved(x, made.astype(np.float32)), order=1, op_type="Conv2d")
    return story


def test_a_weight_that_was_worked_out_beforehand_is_constant_folding() -> None:
    cause = standardised_story().causes()[0]
    assert cause.name == FOLDING
    assert "standardise of the right side depends on weights alone" in cause.evidence


def scaled_story(add: bool = False) -> Story:
    """A factor 1 / sqrt(variance) * gamma a channel: three operators in half precision, or one number."""
    story = Story()
    x = story.normal(6, 16, 5, 5)
    gamma, variance = story.normal(16) + np.float32(3), np.abs(story.normal(16)) + np.float32(0.5)
    made = half(half(1 / half(np.sqrt(half(variance)))) * half(gamma))
    folded = (gamma.astype(np.float64) / np.sqrt(variance)).astype(np.float32)
    story.tell("factor", gamma, gamma, "parameter", parameter="gamma", order=0)
    story.tell("factor", None, made, order=0)
    story.tell("apply", x, x, "input", order=1)
    sides = [x + per_channel(k) if add else x * per_channel(k) for k in (folded, made.astype(np.float32))]
    story.tell("apply", *sides, order=1)
    return story


@pytest.mark.parametrize("add", [False, True])
def test_a_factor_or_addend_that_was_worked_out_beforehand_is_constant_folding(add: bool) -> None:
    cause = scaled_story(add).causes()[0]
    assert cause.name == FOLDING
    assert ("addend" if add else "factor") in cause.evidence


def test_a_constant_is_known_by_its_steps_where_its_inputs_are_not_dumped() -> None:
    story, made = Story(), half(Story().normal(16) + np.float32(2))
    for step in (0, 1):
        x = story.normal(6, 16, 5, 5)
        story.tell("factor", None, made, step=step)
        story.tell("apply", x, x, "input", step=step)
        story.tell(
            "apply", x * per_channel(made * np.float32(1.0007)), x * per_channel(made.astype(np.float32)), step=step
        )
    assert story.cause() == FOLDING


def test_a_factor_that_is_simply_wrong_is_no_constant_folding() -> None:
    story = scaled_story()
    rows = story.rows
    left = story.open(rows[-1].pair.left) * np.float32(1.5)  # type: ignore[arg-type]
    right = story.open(rows[-1].pair.right)  # type: ignore[arg-type]
    story.rows.pop()
    story.tell("apply", left, right, order=1)
    assert FOLDING not in [cause.name for cause in story.causes()]


# ---- 8 bits


def quantised(values: Array, axes: tuple[int, ...] | None = None) -> Array:
    """To int8 and back."""
    scale = np.max(np.abs(values), axis=axes, keepdims=True) / 127
    return (np.clip(np.rint(values / scale), -128, 127).astype(np.int8) * scale).astype(np.float32)


@pytest.fixture
def values() -> Array:
    return Story().normal(8, 16, 10, 10)


def test_an_output_stored_in_int8_is_told_with_its_levels(values: Array) -> None:
    story = Story()
    story.tell("op", quantised(values), values)
    cause = story.causes()[0]
    assert cause.name == INT8
    assert "levels" in cause.evidence


def test_an_output_behind_a_relu_in_uint8_is_told_too(values: Array) -> None:
    right = np.maximum(values, 0)
    scale = right.max() / 255
    left = (np.rint(right / scale).astype(np.uint8) * scale).astype(np.float32)
    assert of_output(left, right) == INT8


def test_a_weight_in_int8_by_channel_is_told() -> None:
    story = Story()
    weight = story.normal(32, 16, 3, 3) * np.linspace(0.1, 4, 32, dtype=np.float32).reshape(-1, 1, 1, 1)
    story.tell("conv", quantised(weight, (1, 2, 3)), weight, "parameter", parameter="weight")
    cause = story.causes(kind="parameter")[0]
    assert cause.name == INT8
    assert "channels" in cause.evidence


@pytest.mark.parametrize("what", ["both", "weight", "by channel"])
def test_a_layer_that_computes_in_int8_is_told(what: str) -> None:
    layer = Layer()
    weight = quantised(layer.weight, (1, 2, 3) if what == "by channel" else None)
    x = quantised(layer.x) if what == "both" else layer.x
    assert layer.blamed(convolved(x, weight)) == INT8


def test_saturated_values_do_not_hide_the_levels(values: Array) -> None:
    scale = np.float32(2.5 / 127)
    left = (np.clip(np.rint(values / scale), -128, 127) * scale).astype(np.float32)
    assert of_output(left, values) == INT8


@pytest.mark.parametrize("step", [1 / 16, 1 / 4, 0.1])
def test_rounding_to_a_step_is_no_half_precision_reduction(values: Array, step: float) -> None:
    story = Story()
    story.tell("op", (np.rint(values / step) * step).astype(np.float32), values)
    names = [cause.name for cause in story.causes()]
    assert "half-precision reduction" not in names
    assert "reduced precision" not in names


def test_more_levels_than_eight_bits_have_are_no_int8(values: Array) -> None:
    story = Story()
    story.tell("op", (np.rint(values * 100) / 100).astype(np.float32), values)
    assert story.cause() not in (INT8, "half-precision reduction")


@pytest.mark.parametrize("grid", [FLOAT16, BFLOAT16])
def test_a_narrow_range_in_half_precision_is_no_int8(grid: object, values: Array) -> None:
    right = np.abs(values) % 1 + np.float32(1)  # between 1 and 2 the steps of a half format are equal
    left = grid.round(right.astype(np.float64)).astype(np.float32)  # type: ignore[attr-defined]
    assert of_output(left, right) == "reduced precision"


# ---- amplifying structures


def jittered(values: Array, size: float = 3e-7, seed: int = 5) -> Array:
    """The same numbers, a few float32 roundings off."""
    noise = np.random.default_rng(seed).standard_normal(values.shape)
    return (values.astype(np.float64) * (1 + size * noise)).astype(np.float32)


def normalised(x: Array) -> Array:
    exact = x.astype(np.float64)
    return (
        (exact - exact.mean((0, 2, 3), keepdims=True)) / np.sqrt(exact.var((0, 2, 3), keepdims=True) + 1e-12)
    ).astype(np.float32)


def small_variance_story() -> Story:
    """A norm over channels that hardly vary: it divides by a thousandth."""
    story = Story()
    x = (np.float32(5) + np.float32(2e-4) * story.normal(4, 8, 6, 6)).astype(np.float32)
    story.tell("norm", jittered(x), x, "input", op_type="BatchNorm2d")
    story.tell("norm", normalised(jittered(x)), normalised(x), op_type="BatchNorm2d")
    return story


def cancelling_story() -> Story:
    story = Story()
    first = story.normal(4, 8, 6, 6) + np.float32(10)
    second = (first + np.float32(1e-4) * story.normal(4, 8, 6, 6)).astype(np.float32)
    lefts = jittered(first, seed=1), jittered(second, seed=2)
    story.tell("sub", lefts[0], first, "input", index=0)
    story.tell("sub", lefts[1], second, "input", index=1)
    story.tell("sub", lefts[0] - lefts[1], first - second)
    return story


def curve_story(function: Callable[[Array], Array]) -> Story:
    story = Story()
    x = (np.float32(30) + story.normal(4, 8, 8, 8)).astype(np.float32)
    left = jittered(x, 1e-4)
    story.tell("f", left, x, "input")
    story.tell(
        "f", function(left.astype(np.float64)).astype(np.float32), function(x.astype(np.float64)).astype(np.float32)
    )
    return story


def layer_story() -> Story:
    """A linear layer along whose rows the input nearly cancels."""
    story = Story()
    x = (story.normal(64, 32) + np.float32(100)).astype(np.float32)
    weight = story.normal(16, 32)
    weight -= weight.mean(1, keepdims=True)
    left = jittered(x, 1e-4)
    story.tell("fc", weight, weight, "parameter", parameter="weight", op_type="Linear")
    story.tell("fc", left, x, "input", op_type="Linear")
    sides = [(side.astype(np.float64) @ weight.T).astype(np.float32) for side in (left, x)]
    story.tell("fc", *sides, op_type="Linear")
    return story


AMPLIFIERS: dict[str, Callable[[], Story]] = {
    "a small variance": small_variance_story,
    "cancellation": cancelling_story,
    "an exponential": lambda: curve_story(lambda x: np.exp(x)),
    "a cancelling layer": layer_story,
}


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_an_operator_that_enlarges_what_came_in_is_told(name: str) -> None:
    cause = AMPLIFIERS[name]().causes()[0]
    assert cause.name == AMPLIFYING
    assert "times as" in cause.evidence


def test_a_norm_that_enlarges_the_rounding_of_its_own_mean_is_told_and_no_matter_of_mode() -> None:
    story = Story()
    x = (np.float32(3) + np.float32(1e-4) * story.normal(8, 8, 12, 12)).astype(np.float32)
    sides = []
    for mean in (x.sum((0, 2, 3), dtype=np.float32) / np.float32(8 * 144), x.mean((0, 2, 3), dtype=np.float64)):
        centred = x - mean.astype(np.float32).reshape(1, -1, 1, 1) + np.float32(0)
        spread = np.sqrt(x.astype(np.float64).var((0, 2, 3)) + 1e-12).astype(np.float32)
        sides.append(centred / spread.reshape(1, -1, 1, 1))
    sides[0] = sides[0] + np.float32(3 * 2**-22) / np.float32(1e-4)  # four roundings of the mean
    story.tell("norm", x, x, "input", op_type="BatchNorm2d")
    story.tell("norm", *sides, op_type="BatchNorm2d")
    cause = story.causes()[0]
    assert cause.name == AMPLIFYING
    assert "rounding of a mean" in cause.evidence


def test_a_norm_in_another_mode_over_such_channels_is_still_that() -> None:
    story = Story()
    x = (np.float32(3) + np.float32(1e-3) * story.normal(8, 8, 12, 12)).astype(np.float32)
    right = normalised(x)
    story.tell("norm", x, x, "input", op_type="BatchNorm2d")
    story.tell("norm", (x - np.float32(2.9)) / np.float32(0.5), right, op_type="BatchNorm2d")
    assert AMPLIFYING not in [cause.name for cause in story.causes()]


def test_equal_inputs_are_not_amplified() -> None:
    assert AMPLIFYING not in [cause.name for cause in norm_story(1e-3, 1e-5).causes()]


def test_a_wrong_operator_with_slightly_different_inputs_is_not_amplifying() -> None:
    story = Story()
    x = story.normal(4, 8, 6, 6)
    story.tell("norm", jittered(x), x, "input")
    story.tell("norm", normalised(jittered(x)) * np.float32(1.3), normalised(x))
    assert AMPLIFYING not in [cause.name for cause in story.causes()]


def residual_story(gain: float, depth: int = 40) -> Story:
    """Blocks x + gain sin(3 x): with a large gain two nearly equal inputs part as fast as they can."""
    story = Story()
    right = story.normal(8, 64)
    left = jittered(right)
    story.tell("network", left, right, "input", order=0)
    for number in range(depth):
        before = left, right
        left, right = (side + np.float32(gain) * np.sin(np.float32(3) * side) for side in before)
        left = jittered(left, 1e-7, seed=number)
        story.tell(f"block{number:02}", *before, "input", order=number + 1)
        story.tell(f"block{number:02}", left, right, order=number + 1)
    return story


def test_residual_blocks_that_enlarge_from_one_to_the_next_are_told() -> None:
    explanation = residual_story(2.0).explained()
    assert explanation.origin is None, "no block does it alone"
    assert explanation.cause == AMPLIFYING
    assert "over" in explanation.causes[0].evidence


def test_rounding_that_only_adds_up_is_not_amplifying() -> None:
    story = Story()
    right = story.normal(8, 64)
    left = right
    story.tell("network", left, right, "input", order=0)
    for number in range(40):
        before = left, right
        left, right = jittered(left, 2e-3, seed=number), right
        story.tell(f"block{number:02}", *before, "input", order=number + 1)
        story.tell(f"block{number:02}", left, right, order=number + 1)
    explanation = story.explained()
    assert explanation.cause != AMPLIFYING


# ---- each only for its own


STORIES: dict[str, tuple[str, Callable[[], Story]]] = {
    "fused in float16": (FUSION, lambda: Normed().tell(Normed().fused(np.float16), np.float16)),
    "fused in float32": (FUSION, lambda: Normed().tell(Normed().fused())),
    "folded weight": (FOLDING, standardised_story),
    "folded factor": (FOLDING, scaled_story),
    **{f"amplified by {name}": (AMPLIFYING, story) for name, story in AMPLIFIERS.items()},
}


@pytest.mark.parametrize("name", STORIES)
def test_no_other_of_these_causes_is_named(name: str) -> None:
    expected, story = STORIES[name]
    assert [cause.name for cause in story().causes() if cause.name in NEW] == [expected]


@pytest.mark.parametrize("what", ["output", "layer", "weight"])
def test_eight_bits_are_no_other_of_these_causes(what: str, values: Array) -> None:
    if what == "layer":
        layer = Layer()
        layer.story.tell("conv", convolved(quantised(layer.x), quantised(layer.weight)), layer.right())
        story = layer.story
    else:
        story = Story()
        story.tell("op", quantised(values), values, "parameter" if what == "weight" else "output")
    assert [cause.name for cause in story.causes() if cause.name in NEW] == [INT8]


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_none_of_these_causes(seed: int, values: Array) -> None:
    story = Story()
    story.tell("op", jittered(values, 0.05, seed), values)
    assert not [cause.name for cause in story.causes() if cause.name in NEW]
