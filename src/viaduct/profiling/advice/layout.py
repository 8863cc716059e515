"""Convolutions on contiguous (NCHW) inputs that are faster in channels_last, and conversions between layouts.

The faster layout depends on the device, the library and the shape, so it is measured: the longest convolutions run
forward and backward in both layouts, taking turns. Without a measurement channels_last is not advised. The effect on
other operators is not counted. Conversions are the copies that `Tensor.contiguous` makes of tensors with four
dimensions, and kernels that transpose; the profile has their time.
"""

from __future__ import annotations

from viaduct.profiling.figures import (
    WORTHWHILE_SHARE,
    Figures,
    is_convolution,
    list_locations,
    parse_convolution,
    parse_shapes,
    show_names,
    show_time,
    sum_by_owner,
)
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 1.0  # from 0 to 1; of two equal gains, the more certain one is listed first
MAX_TIMED = 6  # largest number of convolutions that are timed in both layouts; each takes about a second
CONVERSIONS = ("nchwtonhwc", "nhwctonchw", "transdata")
"""Names of kernels that convert layouts contain one of these: two of cuDNN, one of Ascend."""


def find(figures: Figures) -> Advice | None:
    """Return the advice with the larger gain: to avoid conversions, or to use channels_last."""
    conversions = find_conversions(figures)
    faster = find_faster_layout(figures)
    if conversions and (faster is None or (conversions.gain_us or 0) > (faster.gain_us or 0)):
        return conversions
    return faster


def find_faster_layout(figures: Figures) -> Advice | None:
    """Return advice if the longest contiguous convolutions are faster in channels_last, by measurement."""
    convolutions = [row for row in figures.operators if is_convolution(row) and row.layout == "contiguous"]
    time = sum(row.device_or_self_us for row in convolutions)
    if figures.share_of_step(time) < WORTHWHILE_SHARE:
        return None
    gain, measured = 0.0, 0.0  # microseconds per step
    evidence = []
    longest = pick_longest_forward(convolutions)
    for row in longest:
        convolution = parse_convolution(row)
        times = figures.microbenchmarks.time_layouts(convolution) if figures.microbenchmarks and convolution else None
        if times is None:
            continue
        contiguous_us, channels_last_us = times
        gain += row.calls * (contiguous_us - channels_last_us)
        measured += row.calls * contiguous_us
        evidence.append(
            f"{row.module or row.name}, {convolution}: forward and backward {show_time(contiguous_us)} contiguous, "
            f"{show_time(channels_last_us)} channels_last, {row.calls:.0f} calls per step."
        )
    if not evidence or len(evidence) < len(longest):
        figures.unmeasured.append("the layout of convolutions")
    # The convolutions may take less time in the step than here: the gain is at most the same share of that time.
    gain = min(gain, time * gain / measured) if measured else 0.0
    if not figures.is_worthwhile(gain):
        return None
    return Advice(
        title=f"Convolutions are contiguous; channels_last would save {figures.share_of_step(gain):.0%} of a step",
        action=(
            "model = model.to(memory_format=torch.channels_last), and the images of each batch likewise: "
            "images.to(memory_format=torch.channels_last)."
        ),
        evidence=(f"Contiguous convolutions take {show_time(time)} of a step.", *evidence),
        gain_us=gain,
        gain_basis=f"measured here in both layouts, {len(evidence)} convolutions forward and backward in turns",
        locations=list_locations(convolutions)[:3],
    )


def pick_longest_forward(convolutions: list[Operator]) -> list[Operator]:
    """Return the longest forward convolutions; of nested operators, such as aten::conv2d, the outermost."""
    rows: dict[tuple[str, str], Operator] = {}
    for row in convolutions:
        key = row.module, row.shapes
        longest = rows.get(key)
        if parse_convolution(row) and (longest is None or row.total_us > longest.total_us):
            rows[key] = row
    return sorted(rows.values(), key=lambda row: -row.total_us)[:MAX_TIMED]


def find_conversions(figures: Figures) -> Advice | None:
    """Return advice if copies from one layout to another take a worthwhile time."""
    calls_of_contiguous = [row for row in figures.operators if row.name == "aten::contiguous"]
    conversions = [row for row in calls_of_contiguous if len(next(iter(parse_shapes(row.shapes)), ())) == 4]
    # A backward operator has the module and location of its forward operator. A conversion that has no forward
    # operator was made by torch itself, not by the script.
    forward_owners = {(row.module, row.location) for row in conversions if row.phase == "forward"}
    copies = [row for row in conversions if (row.module, row.location) in forward_owners]
    kernels = [row for row in figures.kernels if any(part in row.name.lower() for part in CONVERSIONS)]
    time = sum(row.total_us for row in copies) + sum(row.time_us for row in kernels)
    if not figures.is_worthwhile(time):
        return None
    owners = sum_by_owner(copies, lambda row: row.total_us)
    names = show_names(owners) or show_names(row.name for row in kernels)
    calls = sum(row.calls for row in copies) + sum(row.calls for row in kernels)
    return Advice(
        title=f"Layout conversions take {figures.share_of_step(time):.0%} of a step",
        action="Keep one layout from the first convolution to the last: remove permute().contiguous(), or convert "
        "the network and its input to channels_last once.",
        evidence=(f"{calls:.0f} copies from one layout to another take {show_time(time)} per step, at {names}.",),
        gain_us=time,
        gain_basis="the measured time of the copies, which would vanish",
        locations=list_locations(copies)[:3],
    )
