"""Operators that were left out."""

from __future__ import annotations

import numpy as np

from comparison.scenes import Array, Story


def test_an_operator_that_hands_on_its_input_is_missing(values: Array) -> None:
    story = Story()
    story.tell("op", values, values, "input")
    story.tell("op", values, np.tanh(values))
    assert story.cause() == "missing operator"


def test_a_lost_bias_is_a_missing_operator() -> None:
    story = Story()
    y, bias = story.normal(32, 16), story.normal(16)
    story.tell("fc", bias, bias, "parameter", index=1, parameter="bias")
    story.tell("fc", y, y + bias)
    cause = story.causes()[0]
    assert cause.name == "missing operator"
    assert "without fc:parameter:1" in cause.evidence


def test_an_unmatched_operator_counts_in_the_rank_of_the_origin_alone() -> None:
    for rank, found in ((0, True), (1, False)):
        story = Story()
        values, other = story.normal(32, 16), story.normal(32, 16)
        story.tell("op", other, other, "input", order=1)
        story.tell("lost", None, values, order=0, rank=rank)
        story.tell("op", np.roll(values, 1), values, order=1)
        assert any("lost of the right side" in cause.evidence for cause in story.causes()) is found
