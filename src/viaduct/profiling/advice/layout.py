"""Convolutions on contiguous (NCHW) inputs that are faster in channels_last, and conversions between layouts.

Which layout is faster depends on the device, the library and the shape, so it is measured: the longest convolutions run
forward and backward in both layouts, taking turns. Without a measurement nothing is advised. What other operators would
win or lose is not counted. Conversions are copies that `contiguous` makes of tensors with four dimensions, or
kernels that transpose; their time is measured in the profile.
"""

from __future__ import annotations

from viaduct.profiling.figures import (
    WORTH,
    Figures,
    add_up,
    is_convolution,
    parse_convolution,
    parse_shapes,
    show_names,
    show_time,
    work_us,
)
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 1.0
MAX_TIMED = 6
"""Convolutions that are timed, the longest ones; each takes a second or so."""
CONVERSIONS = ("nchwtonhwc", "nhwctonchw", "transdata")
"""Parts of the names of kernels that convert layouts: cuDNN's, Ascend's."""


def find(figures: Figures) -> Advice | None:
    """Return the more valuable of the two: about conversions, or about channels_last."""
    conversions = find_conversions(figures)
    faster = find_faster_layout(figures)
    if conversions and (faster is None or (conversions.gain_us or 0) > (faster.gain_us or 0)):
        return conversions
    return faster


def find_faster_layout(figures: Figures) -> Advice | None:
    """Return advice where the longest contiguous convolutions are faster in channels_last, by measurement."""
    convolutions = [row for row in figures.operators if is_convolution(row) and row.layout == "contiguous"]
    time = sum(map(work_us, convolutions))
    if figures.trials is None or figures.share(time) < WORTH:
        return None
    gain, evidence, measured = 0.0, [], 0.0
    for row in pick_forward(convolutions):
        convolution = parse_convolution(row)
        times = figures.trials.time_layouts(convolution) if convolution else None
        if times is None:
            continue
        gain += row.calls * (times[0] - times[1])
        measured += row.calls * times[0]
        evidence.append(
            f"{row.module or row.name}, {convolution}: forward and backward {show_time(times[0])} contiguous, "
            f"{show_time(times[1])} channels_last, {row.calls:.0f} calls per step."
        )
    # Times of single convolutions come out shorter than in the step, whose caches are cold: never claim more than the
    # same share of what the profile saw.
    gain = min(gain, time * gain / measured) if measured else 0.0
    if not figures.is_worth(gain):
        return None
    return Advice(
        name="layout",
        title=f"Convolutions are contiguous; channels_last would save {figures.share(gain):.0%} of a step",
        action=(
            "model = model.to(memory_format=torch.channels_last), and the images of each batch likewise: "
            "images.to(memory_format=torch.channels_last)."
        ),
        evidence=(f"Contiguous convolutions take {show_time(time)} of a step.", *evidence),
        gain_us=gain,
        gain_basis=f"measured here in both layouts, {len(evidence)} convolutions forward and backward in turns",
        locations=tuple(dict.fromkeys(row.location for row in convolutions if row.location))[:3],
    )


def pick_forward(convolutions: list[Operator]) -> list[Operator]:
    """Return the longest forward convolutions, each once: aten::conv2d contains the others of the same shapes."""
    rows: dict[tuple[str, str], Operator] = {}
    for row in convolutions:
        key = row.module, row.shapes
        known = rows.get(key)
        if parse_convolution(row) and (known is None or row.total_us > known.total_us):
            rows[key] = row
    return sorted(rows.values(), key=lambda row: -row.total_us)[:MAX_TIMED]


def find_conversions(figures: Figures) -> Advice | None:
    """Return advice where tensors are copied from one layout to another in every step."""
    found = [row for row in figures.operators if row.name == "aten::contiguous" and has_four_dimensions(row)]
    forward_owners = {name_owner(row) for row in found if row.phase == "forward"}
    copies = [row for row in found if name_owner(row) in forward_owners]  # torch itself makes others in backward passes
    kernels = [row for row in figures.kernels if any(part in row.name.lower() for part in CONVERSIONS)]
    time = sum(row.total_us for row in copies) + sum(row.time_us for row in kernels)
    if not figures.is_worth(time):
        return None
    owners = add_up(copies, lambda row: row.total_us)
    names = show_names(owners) or show_names(row.name for row in kernels)
    calls = sum(row.calls for row in copies) + sum(row.calls for row in kernels)
    return Advice(
        name="layout",
        title=f"Layout conversions take {figures.share(time):.0%} of a step",
        action="Keep one layout from the first convolution to the last: leave out permute().contiguous(), or convert "
        "the network and its input to channels_last once.",
        evidence=(f"{calls:.0f} copies from one layout to another take {show_time(time)} per step, at {names}.",),
        gain_us=time,
        gain_basis="the measured time of the copies, which would vanish",
        locations=tuple(dict.fromkeys(row.location for row in copies if row.location))[:3],
    )


def name_owner(operator: Operator) -> tuple[str, str]:
    """Return module and location, which an operator of the backward pass shares with its forward operator."""
    return operator.module, operator.location


def has_four_dimensions(operator: Operator) -> bool:
    """Return True if the operator's first input has four dimensions."""
    shapes = parse_shapes(operator.shapes)
    return bool(shapes) and len(shapes[0]) == 4
