"""torch.compile recompiles in regular steps: steps that directly follow another, without an evaluation or checkpoint.

A graph is valid for the shapes and values with which it was compiled. One more graph for the last, smaller batch of an
epoch is normal; graphs in several steps are not.
"""

from __future__ import annotations

from viaduct.profiling.compilations import RECOMPILATION_NOTE
from viaduct.profiling.figures import Figures, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 1.0  # from 0 to 1; of two equal gains, the more certain one is listed first
MIN_COMPILING_STEPS = 2
"""Least number of steps that compiled; a single one may be the smaller batch at the end of an epoch."""


def find(figures: Figures) -> Advice | None:
    steps = [step for step in figures.steps if step.recompiled]
    time = sum(step.compile_us for step in steps) / len(figures.steps)
    if len(steps) < MIN_COMPILING_STEPS or not figures.is_worthwhile(time):
        return None
    graphs = sum(step.recompiled for step in steps)
    reasons = [note for note in figures.facts.notes if RECOMPILATION_NOTE in note]  # it may begin with a rank's name
    return Advice(
        title=f"torch.compile compiled {graphs} graphs in {len(figures.steps)} steps: {show_time(time)} of each step",
        action=(
            "Keep shapes fixed (drop_last=True, pad to a few sizes), or compile once for all of them: "
            "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic(x, 0) for the dimension that varies."
        ),
        evidence=(
            f"{len(steps)} of {len(figures.steps)} regular steps compiled {graphs} graphs, "
            f"{show_time(sum(step.compile_us for step in steps))} in all; a mean step takes "
            f"{show_time(sum(step.iteration_us for step in figures.steps) / len(figures.steps))}.",
            *reasons,
        ),
        gain_us=time,
        gain_basis="the measured time of compilation in regular steps, which would vanish",
    )
