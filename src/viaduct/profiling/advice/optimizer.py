"""The update takes a large part of the step, because it runs several operators for each parameter.

Adam and SGD with momentum read and write a parameter and its averages in several operators; a fused optimizer needs
one. The gain is measured on this device: torch's default update against the fused one, with parameters of the same
sizes. Without a measurement nothing is advised. SGD without momentum needs one operator anyway.
"""

from __future__ import annotations

from math import prod

from viaduct.profiling.figures import WORTHWHILE_SHARE, Figures, list_locations, parse_shapes, show_time
from viaduct.profiling.kinds import OPTIMIZER
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 0.9  # from 0 to 1; of two equal gains, the more certain one is listed first
MARKER_OPERATORS = {"aten::addcdiv_": "Adam", "aten::mul_": "SGD"}
"""An operator that an optimizer calls once for each parameter -> the optimizer; SGD calls mul_ for its momentum. Adam
calls mul_ too, so addcdiv_ is looked for first."""


def find(figures: Figures) -> Advice | None:
    update = [row for row in figures.operators if row.phase == "update"]
    class_name, sizes = find_parameters(update)
    # The profiler slows recorded steps down: their kernels can take longer than the update of a timed step.
    time = min(sum(row.time_us for row in figures.kernels if row.kind == OPTIMIZER), figures.update_tail_us)
    if figures.share_of_step(time) < WORTHWHILE_SHARE or not sizes:
        return None
    times = figures.microbenchmarks.time_updates(class_name, sizes) if figures.microbenchmarks else None
    if times is None:
        figures.unmeasured.append(f"a fused {class_name}")
        return None
    default_us, fused_us = times
    gain = min(default_us - fused_us, time)
    if not figures.is_worthwhile(gain):
        return None
    return Advice(
        title=f"The update takes {figures.share_of_step(time):.0%} of a step; a fused {class_name} needs less",
        action=f"Pass fused=True to the optimizer ({class_name}).",
        evidence=(
            f"The optimizer's operators take {show_time(time)} of a step for {len(sizes)} parameters.",
            f"Measured here with {len(sizes)} tensors of these sizes: {show_time(default_us)} by default, "
            f"{show_time(fused_us)} fused.",
        ),
        gain_us=gain,
        gain_basis="the difference of the two updates measured here",
        locations=list_locations(update)[:1],  # the line of optimizer.step()
    )


def find_parameters(update: list[Operator]) -> tuple[str, list[int]]:
    """Return the optimizer's class name and the sizes of its parameters; "" and [] if unknown."""
    for name, class_name in MARKER_OPERATORS.items():
        rows = [(shapes[0], row.calls) for row in update if row.name == name and (shapes := parse_shapes(row.shapes))]
        if rows:
            # Parameters of the same shape share a row, with one call each.
            return class_name, [prod(shape) for shape, calls in rows for _ in range(max(1, round(calls)))]
    return "", []
