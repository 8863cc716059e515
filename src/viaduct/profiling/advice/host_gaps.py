"""The device idles between kernels, because the host cannot queue them fast enough.

Idle time is the time of forward, backward and update minus the time of kernels and of exposed communication (while
nothing is computed). The time before the forward pass belongs to the loader. Kernels that run at the same time in
several streams make the estimate too small. If the profile has the table step_trace_time (torch_npu writes it,
step_split.py computes it for other tools), the free time in this table is used instead, which counts the complete step.
"""

from __future__ import annotations

from statistics import median

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time
from viaduct.profiling.record import Advice
from viaduct.profiling.step_split import FREE, STEP_TRACE_TABLE

CERTAINTY = 0.7  # from 0 to 1; of two equal gains, the more certain one is listed first


def find(figures: Figures) -> Advice | None:
    if not figures.on_accelerator or not figures.kernels:
        return None
    launches = sum(kernel.calls for kernel in figures.kernels)
    time, span = figures.iteration_us, "of a step"
    free = figures.read_column(STEP_TRACE_TABLE, FREE)
    if not free and figures.facts.phases_measured:  # else the time before the forward pass is unknown
        time = figures.forward_backward_us + figures.update_tail_us
        span = "from the start of the forward pass to the end of the step"
    idle = median(free) if free else time - figures.communication_us - sum(row.time_us for row in figures.kernels)
    if figures.share_of_step(idle) < NOTABLE_SHARE:
        return None
    # A sink is a number of steps that the device takes by itself, as one replay of a captured graph.
    in_sink = figures.facts.mode.startswith("sink")
    return Advice(
        title=f"The device idles in {figures.share_of_step(idle):.0%} of each step, between kernels",
        action=suggest_capture(figures.facts.kind == "recipe", in_sink),
        evidence=(
            f"Of the {show_time(time)} {span}, the device has nothing to do for {show_time(idle)}.",
            f"{launches:.0f} kernels are queued in that time, one every {show_time(time / launches)}.",
        ),
        gain_us=idle,
        gain_basis="the time in which no kernel runs, which a captured step hardly has",
        changes={"sink": "auto", "mode": "auto"} if figures.facts.kind == "recipe" and not in_sink else {},
    )


def suggest_capture(is_recipe: bool, in_sink: bool) -> str:
    if is_recipe and not in_sink:
        return "Let the device take many steps by itself: sink=auto; or a larger batch."
    if is_recipe:
        return "Take a larger batch: the steps are already captured."
    return (
        'Capture the step: torch.compile(model, mode="reduce-overhead") or torch.cuda.graphs; or take a larger batch, '
        "so that each kernel lasts longer than it takes to queue it."
    )
