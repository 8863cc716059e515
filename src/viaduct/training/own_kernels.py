"""Whether a run computes with kernels of our own (`--kernels`), and what stands against them."""

from __future__ import annotations

from importlib.util import find_spec

from torch import nn

from viaduct.errors import BadValue
from viaduct.recipes import Recipe, Thor
from viaduct.training.precision import Plan


def obstacle_to_kernels(recipe: Recipe, plan: Plan, device: str, closely: bool, mode: str) -> str | None:
    """Return why this run cannot use our kernels; None if it can."""
    reasons = {
        f"they are for cuda, and this run is on {device}": device != "cuda",
        "they are written in Triton, which is not installed": find_spec("triton") is None,
        f"they compute in bf16 or fp16, and this run in {plan.compute}": plan.compute not in ("bf16", "fp16"),
        "batch norms of frozen layers rest, which they do not": bool(recipe.init.freeze),
        "THOR looks at the convolutions inside of them": isinstance(recipe.optimizer, Thor),
        "a dump looks at the operators inside of them": closely,
        "a network that is compiled whole has no room for them": mode == "graph" and recipe.compile == "whole",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def kernels_for(recipe: Recipe, plan: Plan, device: str, closely: bool, mode: str) -> bool:
    """Return True if parts of the network may run on kernels of our own."""
    if recipe.kernels == "off":
        return False
    obstacle = obstacle_to_kernels(recipe, plan, device, closely, mode)
    if obstacle is not None and recipe.kernels == "on":
        raise BadValue(f"--kernels on: {obstacle}.", "With --kernels auto a run has them where it can.")
    return obstacle is None


def fuse(network: nn.Module, plan: Plan, must: bool) -> int:
    """Give the parts that they fit kernels of our own; how many these are."""
    from viaduct.kernels.fuse import fuse as fuse_parts  # here, for it imports Triton

    done = fuse_parts(network, plan.dtype)
    if must and not done:
        raise BadValue("--kernels on: the network has no part that they fit.", "Leave it at --kernels auto.")
    return done
