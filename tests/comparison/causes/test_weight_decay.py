"""Updates with another weight decay."""

from __future__ import annotations

from comparison.scenes import Array, Story


def tell_update(story: Story, left: Array, right: Array, weight: Array, left_gradient: Array, gradient: Array) -> None:
    story.tell("fc", weight, weight, "parameter", parameter="weight")
    story.tell("fc", left_gradient, gradient, "gradient", parameter="weight")
    story.tell("fc", left, right, "update", parameter="weight")


def test_updates_that_differ_by_a_multiple_of_the_weight_have_another_weight_decay() -> None:
    story = Story()
    weight, gradient = story.normal(16, 8), story.normal(16, 8)
    updates = [-0.1 * (gradient + decay * weight) for decay in (1e-4, 5e-4)]
    tell_update(story, *updates, weight, gradient, gradient)
    assert story.cause(kind="parameter") == "weight decay"


def test_updates_of_different_gradients_or_unrelated_to_the_weight_have_no_other_weight_decay() -> None:
    story = Story()
    weight, gradient = story.normal(16, 8), story.normal(16, 8)
    tell_update(story, gradient + 1e-3 * story.normal(16, 8), gradient, weight, gradient, gradient)
    assert story.cause(kind="parameter") is None
    story = Story()
    tell_update(story, gradient + 1e-3 * weight, gradient, weight, gradient + 0.1 * weight, gradient)
    assert story.cause(kind="parameter") != "weight decay"
