"""Constants that a compiler worked out beforehand; the same numbers are really computed in two ways."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.scenes import FOLDING, Array, Story, convolve, round_to_half, shape_per_channel


def standardise(weight: Array, kind: type) -> Array:
    """Weight standardisation, every operation rounded to a format."""
    values = weight.astype(kind)
    mean = values.mean((1, 2, 3), keepdims=True, dtype=kind)
    spread = np.sqrt(np.square((values - mean).astype(kind)).mean((1, 2, 3), keepdims=True, dtype=kind) + kind(1e-5))
    return np.asarray((values - mean).astype(kind) / spread.astype(kind)).astype(kind)


def make_standardised_story() -> Story:
    """A convolution with a standardised weight: made as the right runs, in half precision, and once on the left."""
    story = Story()
    x, weight = story.normal(4, 8, 12, 12), story.normal(16, 8, 3, 3)
    made, folded = standardise(weight, np.float16), standardise(weight, np.float64)
    story.tell("standardise", weight, weight, "parameter", parameter="weight", order=0)
    story.tell("standardise", None, made, order=0)
    story.tell("conv", x, x, "input", order=1, op_type="Conv2d")
    story.tell("conv", convolve(x, folded), convolve(x, made.astype(np.float32)), order=1, op_type="Conv2d")
    return story


def test_a_weight_that_was_worked_out_beforehand_is_constant_folding() -> None:
    cause = make_standardised_story().causes()[0]
    assert cause.name == FOLDING
    assert "standardise of the right side seems to depend on weights alone" in cause.evidence


def make_scaled_story(add: bool = False) -> Story:
    """A factor 1 / sqrt(variance) * gamma a channel: three operators in half precision, or one number."""
    story = Story()
    x = story.normal(6, 16, 5, 5)
    gamma, variance = story.normal(16) + np.float32(3), np.abs(story.normal(16)) + np.float32(0.5)
    made = round_to_half(round_to_half(1 / round_to_half(np.sqrt(round_to_half(variance)))) * round_to_half(gamma))
    folded = (gamma.astype(np.float64) / np.sqrt(variance)).astype(np.float32)
    story.tell("factor", gamma, gamma, "parameter", parameter="gamma", order=0)
    story.tell("factor", None, made, order=0)
    story.tell("apply", x, x, "input", order=1)
    sides = [x + shape_per_channel(k) if add else x * shape_per_channel(k) for k in (folded, made.astype(np.float32))]
    story.tell("apply", *sides, order=1)
    return story


@pytest.mark.parametrize("add", [False, True])
def test_a_factor_or_addend_that_was_worked_out_beforehand_is_constant_folding(add: bool) -> None:
    cause = make_scaled_story(add).causes()[0]
    assert cause.name == FOLDING
    assert ("addend" if add else "factor") in cause.evidence


def test_a_constant_is_known_by_its_steps_where_its_inputs_are_not_dumped() -> None:
    story, made = Story(), round_to_half(Story().normal(16) + np.float32(2))
    for step in (0, 1):
        x = story.normal(6, 16, 5, 5)
        story.tell("factor", None, made, step=step)
        story.tell("apply", x, x, "input", step=step)
        story.tell(
            "apply",
            x * shape_per_channel(made * np.float32(1.0007)),
            x * shape_per_channel(made.astype(np.float32)),
            step=step,
        )
    assert story.cause() == FOLDING


def test_a_factor_that_is_simply_wrong_is_no_constant_folding() -> None:
    story = make_scaled_story()
    rows = story.rows
    left = story.open(rows[-1].pair.left) * np.float32(1.5)  # type: ignore[arg-type]
    right = story.open(rows[-1].pair.right)  # type: ignore[arg-type]
    story.rows.pop()
    story.tell("apply", left, right, order=1)
    assert FOLDING not in [cause.name for cause in story.causes()]
