"""Checks of one recipe against its reference, or against the recipe that it is derived from."""

from __future__ import annotations

from typing import Any

from viaduct.recipes import load
from viaduct.recipes._fields import list_field_paths, read_field
from viaduct.training.precision import LossScale


def check_settings(name: str, expected: dict[str, Any]) -> None:
    """Check the fields of a recipe, by path."""
    recipe = load(name).recipe
    assert {path: read_field(recipe, path) for path in expected} == expected


def check_derived(name: str, parent: str, changed: set[str]) -> None:
    """Check that a recipe differs from its parent in these fields or parts, and in all of them."""
    recipe, other = load(name).recipe, load(parent).recipe
    known = set(list_field_paths(recipe)) | set(list_field_paths(other))
    differing = {path for path in known if read_or_none(recipe, path) != read_or_none(other, path)}
    assert {path.partition(".")[0] for path in differing} == changed


def read_or_none(recipe: Any, path: str) -> Any:
    """Return a field, or None if a part of the recipe has another type without it."""
    value = recipe
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def check_fp16_scale(name: str, scale: float) -> None:
    """Check that fp16 has this fixed loss scale, and that other precisions have none."""
    precision = load(name).recipe.precision
    assert (LossScale(precision, "fp16").value, LossScale(precision, "fp16").is_dynamic) == (scale, False)
    assert [LossScale(precision, compute).value for compute in ("fp32", "bf16")] == [1.0, 1.0]
