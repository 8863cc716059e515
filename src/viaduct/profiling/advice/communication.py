"""Gradients are reduced while nothing is computed.

DistributedDataParallel reduces the gradients of the last layers while the backward pass still computes the first ones.
An all-reduce by hand after the backward pass hides nothing. The time counted is that of the rank that waits least, so
that waiting for a slow rank, which `stragglers` reports, is not taken for communication.
"""

from __future__ import annotations

from statistics import median

from viaduct.profiling.figures import IDLE, Figures, exposed_us, show_time
from viaduct.profiling.record import Advice, Step

CERTAINTY = 0.7
HIDDEN = 0.5
"""Share of the communication that is exposed from which it counts as not overlapped: the last bucket always is."""


def find(figures: Figures) -> Advice | None:
    """Return advice where collectives are mostly exposed."""
    share, rank = min(((share, rank) for rank, share in figures.exposed_shares.items()), default=(0.0, 0))
    steps = figures.communicating_steps.get(rank, [])
    if share < IDLE or not steps:
        return None
    total = median(sum(row.duration_us for row in step.collectives) for step in steps)
    exposed = median(exposed_us(step.collectives) for step in steps)
    if exposed < HIDDEN * total:
        return None
    after = share_after_backward(steps)
    return Advice(
        name="communication",
        title=f"Communication is not overlapped: {share:.0%} of each step waits for collectives",
        action=suggest(after >= 0.5),
        evidence=(
            describe(steps, total, exposed),
            f"{after:.0%} of the collectives begin after the backward pass, which lasts about "
            f"{show_time(figures.backward_us)} and could hide them.",
        ),
        gain_us=min(figures.communication_us, figures.backward_us),
        gain_basis="the exposed time, as far as the backward pass is long enough to hide it",
    )


def suggest(by_hand: bool) -> str:
    """Say how to overlap, for all-reduces by hand and for DistributedDataParallel."""
    if by_hand:
        return (
            "Wrap the network in torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) "
            "instead of calling all_reduce after backward(): it reduces each bucket while the next is computed."
        )
    return (
        "Let DistributedDataParallel begin earlier and send less: bucket_cap_mb (25 by default; smaller buckets begin "
        "earlier, larger ones have less latency), gradient_as_bucket_view=True, static_graph=True."
    )


def describe(steps: list[Step], total: float, exposed: float) -> str:
    """Return number, size and time of the collectives of a step."""
    count = median(len(step.collectives) for step in steps)
    sizes = [row.bytes for step in steps for row in step.collectives if row.bytes is not None]
    size = f" of {sum(sizes) / len(steps) / 1e6:.3g} MB" if sizes else ""
    return (
        f"{count:.0f} collectives{size} per step take {show_time(total)}; in {show_time(exposed)} of it the rank that "
        "waits least computes nothing."
    )


def share_after_backward(steps: list[Step]) -> float:
    """Return the share of the collectives that begin when the backward pass has ended."""
    starts = [row.start_us >= step.backward_end_us for step in steps for row in step.collectives]
    return sum(starts) / len(starts)
