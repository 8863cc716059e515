"""The update takes a large part of the step, because it runs several operators for each parameter.

Adam and SGD with momentum read and write a parameter and its averages in several operators; a fused optimizer does so
once. The gain is the difference between torch's default and the fused update, measured on this device with parameters
of the same sizes; without a measurement nothing is advised. SGD without momentum already is one operator.
"""

from __future__ import annotations

from math import prod

from viaduct.profiling.figures import WORTHWHILE_SHARE, Figures, list_locations, parse_shapes, show_time
from viaduct.profiling.kinds import OPTIMIZER
from viaduct.profiling.record import Advice, Operator

PRIORITY_AT_EQUAL_GAIN = 0.9
MARKER_OPERATORS = {"aten::addcdiv_": "Adam", "aten::mul_": "SGD"}
"""Operators that an optimizer calls once for each parameter (SGD for its momentum), in the order in which they are
searched: Adam calls mul_ too."""


def find(figures: Figures) -> Advice | None:
    update = [row for row in figures.operators if row.phase == "update"]
    class_name, sizes = find_parameters(update)
    time = min(sum(row.time_us for row in figures.kernels if row.kind == OPTIMIZER), figures.update_tail_us)
    if figures.trials is None or figures.share(time) < WORTHWHILE_SHARE or not sizes:
        return None
    times = figures.trials.time_updates(class_name, sizes)
    if times is None:
        return None
    default_us, fused_us = times
    gain = min(default_us - fused_us, time)
    if not figures.is_worth(gain):
        return None
    return Advice(
        name="optimizer",
        title=f"The update takes {figures.share(time):.0%} of a step; a fused {class_name} needs less",
        action=f"Pass fused=True to the optimizer ({class_name}).",
        evidence=(
            f"The optimizer's operators take {show_time(time)} of a step for {len(sizes)} parameters.",
            f"Measured here with {len(sizes)} tensors of these sizes: {show_time(default_us)} by default, "
            f"{show_time(fused_us)} fused.",
        ),
        gain_us=gain,
        gain_basis="the difference of the two updates measured here",
        locations=list_locations(update)[:1],
    )


def find_parameters(update: list[Operator]) -> tuple[str, list[int]]:
    """Return the optimizer's class name and the sizes of its parameters; "" and [] if unknown."""
    for name, class_name in MARKER_OPERATORS.items():
        rows = [(shapes[0], row.calls) for row in update if row.name == name and (shapes := parse_shapes(row.shapes))]
        if rows:
            return class_name, [prod(shape) for shape, calls in rows for _ in range(max(1, round(calls)))]
    return "", []
