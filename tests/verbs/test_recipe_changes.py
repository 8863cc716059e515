"""Recipes changed by flags and by --set."""

from __future__ import annotations

from viaduct.verbs import _recipe_changes


def test_a_flag_and_a_setting_that_say_the_same_are_no_contradiction() -> None:
    flags = {"sink": ("sink", "4"), "precision": ("precision.compute", "bf16"), "lr": ("optimizer.lr", "0.10")}
    settings = ["sink=4", "precision.compute = BF16", "optimizer.lr=.1", "mode=graph"]
    changes = _recipe_changes.merge_changes(flags, settings)
    assert dict(changes) == {"sink": "4", "precision.compute": "BF16", "optimizer.lr": ".1", "mode": "graph"}
