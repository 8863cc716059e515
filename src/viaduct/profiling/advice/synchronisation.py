"""The host waits for the device in every step: `.item()`, `.cpu()`, `print(loss)`, `nonzero`.

Until the value arrives, the host queues no further work, and the device idles. Waits inside an optimizer, a gradient
scaler or a loader do not count, and neither do lines that wait in only some steps, such as logging every tenth step.
Copying a batch from pageable memory waits, too. Nearly every script does that, so it counts only if the device idles
long enough meanwhile. A CPU has no queue to wait for: there the advice is a remark for accelerators, without a gain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod

from viaduct.profiling.figures import Figures, list_locations, parse_shapes, show_names, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 0.9  # from 0 to 1; of two equal gains, the more certain one is listed first
EVERY_STEP = 0.9  # least number of calls per recorded step of a line that counts as waiting in every step
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")
UPDATES = re.compile(r"::_foreach|::_fused_(sgd|adam)|::(add|mul|addcdiv|addcmul|lerp|copy)_$")
"""Names of operators that change parameters."""


@dataclass
class Line:
    """One line of the script that waits for the device."""

    location: str
    calls: float = 0.0
    time_us: float = 0.0
    names: list[str] = field(default_factory=list)  # of the waiting operators
    is_copy: bool = True  # all its waits are copies of a tensor, such as a batch, to or from the accelerator


def find(figures: Figures) -> Advice | None:
    """Return advice if lines of the script read values in every step."""
    lines = collect_lines(figures)
    if not lines:
        return None
    calls, time = sum(line.calls for line in lines), sum(line.time_us for line in lines)
    names = show_names(line.location for line in lines) or "lines that were not recorded"
    number = f"{calls:.0f} time{'s' * (round(calls) != 1)}"
    return Advice(
        title=(
            f"The host waits for the device {number} in each step, at {names}"
            if figures.on_accelerator
            else f"For accelerators: the host would wait for the device {number} in each step, at {names}"
        ),
        action=suggest_changes(lines),
        evidence=(*map(describe_line, lines), explain_cost(figures, time)),
        gain_us=estimate_gain(figures, time),
        gain_basis=(
            "the device's idle time, at most the time of these calls"
            if figures.on_accelerator
            else "none on this CPU, which has no queue of work to wait for; an accelerator would gain"
        ),
        locations=tuple(line.location for line in lines if line.location),
    )


def suggest_changes(lines: list[Line]) -> str:
    values = (
        "Keep the value on the device (total += loss.detach()) and read it only every few steps, or after the epoch; "
        "compute with tensors instead of branching on their values."
    )
    copies = "Copy batches from pinned memory: DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)."
    if all(line.is_copy for line in lines):
        return copies
    return f"{values} {copies}" if any(line.is_copy for line in lines) else values


def collect_lines(figures: Figures) -> list[Line]:
    """Return the lines that synchronise in every step, most expensive first."""
    lines: dict[str, Line] = {}
    updates = [row for row in figures.operators if row.phase == "update" and UPDATES.search(row.name.lower())]
    optimizer_lines = list_locations(updates)  # inside optimizer.step(), torch chooses the operators
    for row in figures.operators:
        if row.synchronises and row.phase != "data" and row.location not in optimizer_lines:
            line = lines.setdefault(row.location, Line(row.location))
            # The maximum, not the sum: aten::item calls aten::_local_scalar_dense, but there is only one wait.
            line.calls = max(line.calls, row.calls)
            line.time_us = max(line.time_us, row.total_us)
            line.names.append(row.name)
            is_scalar = not any(prod(shape) > 1 for shape in parse_shapes(row.shapes)[:1])  # by the first input's shape
            line.is_copy = line.is_copy and figures.on_accelerator and row.name in COPIES and not is_scalar
    waiting = [
        line
        for line in lines.values()
        if line.calls >= EVERY_STEP
        and (not line.is_copy or figures.is_worthwhile(estimate_gain(figures, line.time_us) or 0.0))
    ]
    return sorted(waiting, key=lambda line: -line.time_us)


def describe_line(line: Line) -> str:
    operators = show_names(dict.fromkeys(line.names))
    location = line.location or "A line that was not recorded"
    return f"{location}: {line.calls:.3g} calls per step ({operators}), {show_time(line.time_us)} in all."


def explain_cost(figures: Figures, time_us: float) -> str:
    """Return the cost of the calls on this device; for a CPU also the effect on an accelerator."""
    if figures.on_accelerator:
        return f"The host spends {show_time(time_us)} of each step in these calls, while it queues no work."
    return (
        f"On this CPU they cost {show_time(time_us)} of a step of {show_time(figures.iteration_us)}; on an "
        "accelerator each of them waits until the device has finished all work queued before it."
    )


def estimate_gain(figures: Figures, time_us: float) -> float | None:
    """Return the device's idle time, at most the time of the calls; None on a CPU or without recorded kernels."""
    if not figures.on_accelerator or not figures.kernels:
        return None
    idle = figures.iteration_us - sum(kernel.time_us for kernel in figures.kernels)
    return max(0.0, min(time_us, idle))
