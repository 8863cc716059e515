"""Gradients are reduced while nothing is computed: this time is the exposed part of a collective.

DistributedDataParallel reduces the gradients of the last layers while the backward pass still computes gradients of the
first layers. An explicit all-reduce after the backward pass does not overlap. The figures are those of the rank that
waits least: other ranks may also wait for a slow rank, which the rule `stragglers` reports. A gain is estimated only
for collectives that begin after the backward pass; for others, the effect of another bucket size is unknown. If
collectives are known only from recorded steps (under the operator profiler), their times are scaled to timed steps,
which are shorter.
"""

from __future__ import annotations

from statistics import median

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time, sum_exposed_us
from viaduct.profiling.record import Advice, Step

CERTAINTY = 0.7  # from 0 to 1; of two equal gains, the more certain one is listed first
MOSTLY_EXPOSED = 0.5
"""Least exposed share of communication that is reported; some is normal, because the last bucket is always exposed."""


def find(figures: Figures) -> Advice | None:
    """Return advice if collectives are mostly exposed."""
    share, rank = min(((share, rank) for rank, share in figures.exposed_shares.items()), default=(0.0, 0))
    steps = figures.communicating_steps.get(rank, [])
    if share < NOTABLE_SHARE or not steps:
        return None
    total = median(sum(row.duration_us for row in step.collectives) for step in steps)
    exposed = median(sum_exposed_us(step.collectives) for step in steps)
    if exposed < MOSTLY_EXPOSED * total:
        return None
    are_late = [row.start_us >= step.backward_end_us for step in steps for row in step.collectives]
    late_share = sum(are_late) / len(are_late)
    gain = estimate_gain(figures, steps)
    return Advice(
        title=(
            f"{share:.0%} of each step waits for collectives"
            if gain is None
            else f"Communication is mostly not overlapped: {share:.0%} of each step waits for collectives"
        ),
        action=suggest_overlap(is_after_backward=late_share >= 0.5),
        evidence=(
            describe_collectives(figures, steps, total, exposed),
            f"{late_share:.0%} of the collectives begin after the backward pass"
            + (f", which lasts about {show_time(figures.backward_us)} and could hide them." if gain else "."),
        ),
        gain_us=gain,
        gain_basis=(
            "in most steps, no exposed collective begins after the backward pass; try other bucket sizes"
            if gain is None
            else "the exposed time of collectives after the backward pass, at most the length of the backward pass"
        ),
    )


def estimate_gain(figures: Figures, steps: list[Step]) -> float | None:
    """Return the exposed time per timed step that the backward pass could hide.

    None if in more than half of the steps no exposed collective begins after the backward pass.
    """
    late = [
        sum_exposed_us(row for row in step.collectives if row.start_us >= step.backward_end_us)
        * scale_to_timed(figures, step)
        for step in steps
    ]
    return min(median(late), figures.backward_us) or None


def scale_to_timed(figures: Figures, step: Step) -> float:
    """Return the factor that scales times of a timed or recorded step to a typical timed step; at most 1."""
    return min(1.0, figures.iteration_us / step.iteration_us) if step.iteration_us > 0 else 1.0


def suggest_overlap(is_after_backward: bool) -> str:
    if is_after_backward:
        return (
            "Wrap the network in torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) "
            "instead of calling all_reduce after backward(): it reduces each bucket while the next is computed."
        )
    return (
        "Let DistributedDataParallel begin earlier, and copy less: bucket_cap_mb (25 by default; smaller buckets begin "
        "earlier, larger ones have less latency), gradient_as_bucket_view=True, static_graph=True."
    )


def describe_collectives(figures: Figures, steps: list[Step], total: float, exposed: float) -> str:
    """Return a sentence: number, size and time of the collectives per step, and the length of these steps."""
    count = median(len(step.collectives) for step in steps)
    sizes = [row.bytes for step in steps for row in step.collectives if row.bytes is not None]
    size = f" of {sum(sizes) / len(steps) / 1e6:.3g} MB" if sizes else ""
    length = median(step.iteration_us for step in steps)
    is_recorded = any(step.is_recorded for step in steps)
    kind = "recorded step" if is_recorded else "step"
    text = (
        f"{count:.0f} collectives{size} per {kind} of {show_time(length)} take {show_time(total)}; in "
        f"{show_time(exposed)} of it the rank that waits least computes nothing."
    )
    if is_recorded:
        scaled = median(sum_exposed_us(step.collectives) * scale_to_timed(figures, step) for step in steps)
        text += f" In a timed step of {show_time(figures.iteration_us)} that is about {show_time(scaled)}."
    return text
