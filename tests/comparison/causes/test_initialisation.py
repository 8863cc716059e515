"""Weights that were drawn anew."""

from __future__ import annotations

from comparison.scenes import Story


def test_weights_drawn_anew_are_an_initialisation() -> None:
    story = Story()
    for name in ("a", "b"):
        story.tell(name, story.normal(16, 8, 3, 3), story.normal(16, 8, 3, 3), "parameter", parameter="weight")
    assert story.cause(kind="parameter") == "initialisation"
