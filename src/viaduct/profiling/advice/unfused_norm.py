"""On NVIDIA GPUs: normalisation and activation are separate kernels, and each reads and writes the complete tensor.

A fused kernel applies the activation while the normalised value is in a register. viaduct's kernels do so in recipes
and in known blocks of torchvision and timm.
"""

from __future__ import annotations

import re

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time
from viaduct.profiling.record import Advice

PRIORITY_AT_EQUAL_GAIN = 0.6
_ACTIVATION = re.compile(r"relu|threshold|clamp_min|silu|gelu|hardswish|sigmoid")


def find(figures: Figures) -> Advice | None:
    """Return advice if normalisation and kernels of activations both take a large part of a step."""
    if figures.facts.device != "cuda":
        return None
    norms = sum(row.time_us for row in figures.kernels if row.kind == "normalisation")
    other_kernels = [row for row in figures.kernels if row.kind != "normalisation"]
    activations = [row for row in other_kernels if _ACTIVATION.search(f"{row.name} {row.operator}".lower())]
    time = sum(row.time_us for row in activations)
    if figures.share(norms) < NOTABLE_SHARE or not figures.is_worth(time):
        return None
    is_recipe = figures.facts.kind == "recipe"
    return Advice(
        name="unfused_norm",
        title=f"Activations are kernels beside normalisation: {figures.share(time):.0%} of a step",
        action=(
            "Let viaduct's fused kernels do both: kernels=auto."
            if is_recipe
            else "Fuse them: torch.compile(model), or viaduct's kernels for blocks of torchvision and timm."
        ),
        evidence=(
            f"Normalisation takes {show_time(norms)} of a step; {sum(row.calls for row in activations):.0f} kernels "
            f"of activations take another {show_time(time)}.",
        ),
        gain_us=time,
        gain_basis="the measured time of the activations' kernels, which vanish if they follow a normalisation",
        changes={"kernels": "auto"} if is_recipe else {},
    )
