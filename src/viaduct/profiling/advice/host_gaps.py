"""The device idles between kernels, because the host cannot queue them fast enough.

Idle is what remains of forward, backward and update when the kernels and the exposed communication are taken off; the
time before the forward pass belongs to the loader. Kernels of several streams that run at once make the
estimate smaller, never larger.
"""

from __future__ import annotations

from viaduct.profiling.figures import IDLE, Figures, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 0.7


def find(figures: Figures) -> Advice | None:
    if not figures.on_accelerator or not figures.kernels:
        return None
    busy = sum(kernel.time_us for kernel in figures.kernels)
    launches = sum(kernel.calls for kernel in figures.kernels)
    step = figures.forward_backward_us + figures.update_tail_us - figures.communication_us
    idle = step - busy
    if figures.share(idle) < IDLE:
        return None
    in_sink = figures.facts.mode.startswith("sink")
    return Advice(
        name="host_gaps",
        title=f"The device idles in {figures.share(idle):.0%} of each step, between kernels",
        action=suggest(figures.facts.kind == "recipe", in_sink),
        evidence=(
            f"{launches:.0f} kernels keep the device busy for {show_time(busy)} of the {show_time(step)} from the "
            "start of the forward pass to the end of the step.",
            f"A kernel takes {show_time(busy / launches)} on average; the host gets one queued every "
            f"{show_time(step / launches)}.",
        ),
        gain_us=idle,
        gain_basis="the measured time without a kernel, which a captured step does not have",
        changes={"sink": "auto", "mode": "auto"} if figures.facts.kind == "recipe" and not in_sink else {},
    )


def suggest(is_recipe: bool, in_sink: bool) -> str:
    """Say how to take the host out of the step."""
    if is_recipe and not in_sink:
        return "Let the device take many steps by itself: sink=auto; or a larger batch."
    if is_recipe:
        return "Take a larger batch: the steps are captured already."
    return (
        'Capture the step: torch.compile(model, mode="reduce-overhead") or torch.cuda.graphs; or take a larger batch, '
        "so that each kernel lasts longer than it takes to queue it."
    )
