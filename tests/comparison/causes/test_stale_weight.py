"""Weights of an earlier step."""

from __future__ import annotations

import numpy as np

from comparison.scenes import Story


def test_a_weight_of_an_earlier_step_is_stale() -> None:
    story = Story()
    old = story.normal(16, 8)
    new = old + 0.1 * story.normal(16, 8)
    story.tell("fc", old, old, "parameter", step=0, parameter="weight")
    story.tell("fc", old, new, "parameter", step=1, parameter="weight")
    assert story.cause(kind="parameter") == "stale weight"


def test_an_update_of_nothing_is_a_stale_weight() -> None:
    story = Story()
    update = story.normal(16, 8)
    story.tell("fc", np.zeros_like(update), update, "update", parameter="weight")
    assert story.cause(kind="parameter") == "stale weight"


def test_a_layer_that_computes_with_an_old_copy_has_a_stale_weight() -> None:
    story = Story()
    old, x = story.normal(16, 8), story.normal(32, 8)
    new = old + 0.1 * story.normal(16, 8)
    story.tell("fc", old, old, "parameter", step=0, parameter="weight")
    story.tell("fc", new, new, "parameter", step=1, parameter="weight")
    story.tell("fc", x, x, "input", step=1)
    story.tell("fc", x @ old.T, x @ new.T, step=1)
    assert story.cause() == "stale weight"
