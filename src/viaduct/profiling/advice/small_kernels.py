"""Many kernels are so short that starting them is most of their time.

The mean time of the shortest of these kernels is taken as the cost of starting any kernel. Fusing kernels saves at
least this cost for each kernel that disappears.
"""

from __future__ import annotations

from viaduct.profiling import kinds
from viaduct.profiling.figures import Figures, show_names, show_time
from viaduct.profiling.record import Advice, Kernel

CERTAINTY = 0.5  # from 0 to 1; of two equal gains, the more certain one is listed first
SHORT_US = 10.0
"""Time below which starting a kernel (2 to 5 µs on measured devices) is a large part of its time."""
FUSIBLE = (kinds.ELEMENTWISE, kinds.COPIES, kinds.OPTIMIZER, kinds.OTHER, kinds.NORMALISATION, kinds.REDUCTION)
"""Kinds of kernels that a compiler fuses with their neighbours."""


def find(figures: Figures) -> Advice | None:
    """Return advice if starting short kernels takes a notable share of the step."""
    if not figures.on_accelerator:
        return None
    short = [row for row in figures.kernels if row.kind in FUSIBLE and row.calls > 0 and mean_us(row) < SHORT_US]
    calls = sum(row.calls for row in short)
    if not short:
        return None
    shortest_us = min(map(mean_us, short))
    gain = calls * shortest_us
    if not figures.is_worthwhile(gain):
        return None
    launches = sum(row.calls for row in figures.kernels)
    rows = sorted(short, key=lambda row: -row.calls)
    return Advice(
        title=f"{calls:.0f} kernels of each step are shorter than {SHORT_US:.0f} µs",
        action=(
            "Fuse them: torch.compile, a fused or foreach optimizer, and operators that combine several others "
            "(scaled_dot_product_attention, cross_entropy on logits)."
        ),
        evidence=(
            f"{calls:.0f} of {launches:.0f} kernels per step take less than {SHORT_US:.0f} µs each, "
            f"{show_time(sum(row.time_us for row in short))} together; the shortest takes {show_time(shortest_us)}.",
            f"Most frequent: {show_names(f'{row.name} ({row.calls:.0f})' for row in rows)}.",
        ),
        gain_us=gain,
        gain_basis=f"if all {calls:.0f} kernels were fused into others and starting one takes {show_time(shortest_us)}",
        changes={"mode": "graph"} if figures.facts.kind == "recipe" and figures.facts.mode == "eager" else {},
    )


def mean_us(kernel: Kernel) -> float:
    return kernel.time_us / kernel.calls
