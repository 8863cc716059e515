"""Decides whether a run may use viaduct's own kernels (`--kernels`)."""

from __future__ import annotations

from importlib.util import find_spec

from viaduct.errors import BadValue
from viaduct.recipes import Recipe, Thor
from viaduct.training.precision import PrecisionPlan


def uses_own_kernels(recipe: Recipe, plan: PrecisionPlan, device: str, observed: bool, mode: str) -> bool:
    """Return True if nothing forbids viaduct's kernels; raise BadValue if `--kernels on` demands them nevertheless.

    `observed` is True if a callback, such as a dump, observes every operator. `mode` is "eager" or "graph".
    """
    if recipe.kernels == "off":
        return False
    obstacles = {
        f"they are for cuda, and this run is on {device}": device != "cuda",
        "they are written in Triton, which is not installed": find_spec("triton") is None,
        f"they compute in bf16 or fp16, and this run in {plan.compute}": plan.compute not in ("bf16", "fp16"),
        "they would update the statistics of frozen batch norms": bool(recipe.init.freeze),
        "THOR observes the convolutions that they replace": isinstance(recipe.optimizer, Thor),
        "a dump or another callback observes the operators that they replace": observed,
        "they cannot be part of a network compiled whole": mode == "graph" and recipe.compile == "whole",
    }
    obstacle = next((reason for reason, applies in obstacles.items() if applies), None)
    if obstacle is not None and recipe.kernels == "on":
        raise BadValue(f"--kernels on: {obstacle}.", "With --kernels auto a run uses viaduct's kernels where it can.")
    return obstacle is None
