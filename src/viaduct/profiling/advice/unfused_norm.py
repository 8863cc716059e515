"""On NVIDIA GPUs: normalisation and activation are separate kernels, and each reads and writes the complete tensor.

A fused kernel applies the activation while the normalised value is in a register. viaduct has such kernels for recipes
and for known blocks of torchvision and timm.
"""

from __future__ import annotations

import re

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time
from viaduct.profiling.kinds import NORMALISATION
from viaduct.profiling.record import Advice

CERTAINTY = 0.6  # from 0 to 1; of two equal gains, the more certain one is listed first
_ACTIVATION = re.compile(r"relu|threshold|clamp_min|silu|gelu|hardswish|sigmoid")


def find(figures: Figures) -> Advice | None:
    """Return advice if normalisation takes a notable part of a step, and kernels of activations a worthwhile one."""
    if figures.facts.device != "cuda":
        return None
    norm_us = sum(kernel.time_us for kernel in figures.kernels if kernel.kind == NORMALISATION)
    activations = [
        kernel
        for kernel in figures.kernels
        if kernel.kind != NORMALISATION and _ACTIVATION.search(f"{kernel.name} {kernel.operator}".lower())
    ]
    time = sum(kernel.time_us for kernel in activations)
    if figures.share_of_step(norm_us) < NOTABLE_SHARE or not figures.is_worthwhile(time):
        return None
    is_recipe = figures.facts.kind == "recipe"
    return Advice(
        title=f"Activations run in kernels of their own: {figures.share_of_step(time):.0%} of a step",
        action=(
            "Let viaduct's fused kernels do both: kernels=auto."
            if is_recipe
            else "Fuse them: torch.compile(model), or viaduct's kernels for blocks of torchvision and timm."
        ),
        evidence=(
            f"Normalisation takes {show_time(norm_us)} of a step; {sum(row.calls for row in activations):.0f} kernels "
            f"of activations take another {show_time(time)}.",
        ),
        gain_us=time,
        gain_basis="the measured time of the activations' kernels; those that follow a normalisation would vanish",
        changes={"kernels": "auto"} if is_recipe else {},
    )
