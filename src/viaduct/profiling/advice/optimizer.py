"""The update takes a large part of the step, because it handles each parameter by itself.

A fused optimizer reads and writes every parameter once. What it would save is measured on this device with parameters
of the same sizes; without a measurement nothing is advised.
"""

from __future__ import annotations

from viaduct.profiling.figures import WORTH, Figures, parse_shapes, show_time
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 0.9
KINDS = {"aten::addcdiv_": "Adam", "aten::_foreach_addcdiv_": "Adam", "aten::add_": "SGD", "aten::_foreach_add_": "SGD"}
"""Operators that change parameters, and the optimizer that calls them for each; the first that is found decides."""


def find(figures: Figures) -> Advice | None:
    update = [row for row in figures.operators if row.phase == "update"]
    kind, sizes = find_parameters(update)
    tail = figures.update_tail_us - figures.communication_us
    if figures.trials is None or figures.share(tail) < WORTH or not sizes:
        return None
    times = figures.trials.time_updates(kind, sizes)
    gain = tail * (1 - times[1] / times[0]) if times else 0.0
    if times is None or not figures.is_worth(gain):
        return None
    calls = sum(row.calls for row in update if row.self_us > 0)
    return Advice(
        name="optimizer",
        title=f"The update takes {figures.share(tail):.0%} of a step; a fused {kind} needs less",
        action=f"Pass fused=True to the optimizer ({kind}, or AdamW alike).",
        evidence=(
            f"The update of {len(sizes)} parameters takes {show_time(tail)} in {calls:.0f} operators.",
            f"Measured here with {len(sizes)} tensors of these sizes: {show_time(times[0])} one by one, "
            f"{show_time(times[1])} fused.",
        ),
        gain_us=gain,
        gain_basis="measured here with tensors of the same sizes, one by one and fused",
        locations=tuple(dict.fromkeys(row.location for row in update if row.location))[:1],
    )


def find_parameters(update: list[Operator]) -> tuple[str, list[int]]:
    """Return the kind of the optimizer and the sizes of its parameters; an empty list where they are not known."""
    for name, kind in KINDS.items():
        rows = [row for row in update if row.name == name and parse_shapes(row.shapes)]
        if rows:
            return kind, [count_elements(row) for row in rows for _ in range(max(1, round(row.calls)))]
    return "", []


def count_elements(operator: Operator) -> int:
    """Return the number of elements of the operator's first input."""
    count = 1
    for side in parse_shapes(operator.shapes)[0]:
        count *= side
    return count
