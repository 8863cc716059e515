"""A layer computes in float32 inside a network that otherwise computes in bfloat16 or float16.

Only convolutions and matrix products ("heavy" operators) count: normalisation, softmax and the loss are kept in float32
on purpose. The time in both dtypes is measured if this machine can do so. Otherwise the gain is computed from the
measured peak rates of the device in both dtypes, or it is unknown.
"""

from __future__ import annotations

from viaduct.profiling.figures import (
    WORTHWHILE_SHARE,
    Figures,
    find_float_dtype,
    is_convolution,
    list_locations,
    parse_convolution,
    parse_matrix_product,
    show_names,
    show_time,
    sum_by_owner,
)
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 0.9  # from 0 to 1; of two equal gains, the more certain one is listed first
LOW_PRECISION = ("bfloat16", "float16")
MOSTLY = 0.5  # least share of heavy operators in low precision, by calls or by arithmetic, in a low-precision network


def find(figures: Figures) -> Advice | None:
    """Return advice if a low-precision network has heavy float32 operators."""
    heavy = figures.heavy_operators
    island = [row for row in heavy if find_float_dtype(row) == "float32"]
    low = [row for row in heavy if find_float_dtype(row) in LOW_PRECISION]
    # The profiler slows recorded steps: the sum of their operators can exceed the time of an undisturbed step.
    time = min(sum(row.device_or_self_us for row in island), figures.forward_backward_us)
    if not is_low_precision(low, heavy) or figures.share_of_step(time) < WORTHWHILE_SHARE:
        return None
    dtype = find_float_dtype(max(low, key=lambda row: row.calls))
    ratio, basis = find_time_ratio(figures, island, dtype)
    gain = None if ratio is None else time * (1 - ratio)
    if gain is not None and not figures.is_worthwhile(gain):
        return None
    owners = sum_by_owner(island, lambda row: row.device_or_self_us)
    return Advice(
        title=f"Float32 in a {dtype} network: {show_names(owners)} takes {figures.share_of_step(time):.0%} of a step",
        action=(
            f"Let this layer compute in {dtype}: take it out of the region where autocast is off, or convert its "
            "weights with the others. Keep float32 for normalisation, softmax and the loss."
        ),
        evidence=(*describe_heavy(island, low), describe_casts(figures)),
        gain_us=gain,
        gain_basis=basis,
        locations=list_locations(island),
        changes={"precision.compute": "O1"} if figures.facts.kind == "recipe" else {},  # O1: autocast of the network
    )


def is_low_precision(low: list[Operator], heavy: list[Operator]) -> bool:
    """Return True if most heavy operators, by calls or by arithmetic, compute in low precision."""
    calls = sum(row.calls for row in heavy)
    flops = sum(row.flops or 0.0 for row in heavy)
    by_calls = sum(row.calls for row in low) >= MOSTLY * calls
    by_flops = flops > 0 and sum(row.flops or 0.0 for row in low) >= MOSTLY * flops
    return bool(low) and (by_calls or by_flops)


def find_time_ratio(figures: Figures, island: list[Operator], dtype: str) -> tuple[float | None, str]:
    """Return time in low precision divided by time in float32, and how it was found."""
    measured = measure_time_ratio(figures, island, dtype)
    if measured is not None:
        return measured, (
            f"these operators' recorded time, scaled by the speedup in {dtype} of the longest that was measured here"
        )
    ceilings = figures.profile.ceilings
    if ceilings and ceilings.flops.get(dtype) and ceilings.flops.get("float32"):
        return ceilings.flops["float32"] / ceilings.flops[dtype], "the device's measured peak FLOP/s in both dtypes"
    return None, "not measured: neither the speedup of these operators nor the device's peak FLOP/s is known"


def measure_time_ratio(figures: Figures, island: list[Operator], dtype: str) -> float | None:
    """Return low-precision time / float32 time of the longest float32 operator that can be timed here, or None."""
    if figures.microbenchmarks is None:
        return None
    for row in sorted(island, key=lambda row: row.device_or_self_us, reverse=True):
        work = parse_convolution(row) if is_convolution(row) else parse_matrix_product(row)
        times = figures.microbenchmarks.time_dtypes(work, dtype) if work is not None else None
        if times is not None:
            float32_us, low_precision_us = times
            return low_precision_us / float32_us
    return None


def describe_heavy(island: list[Operator], low: list[Operator]) -> tuple[str, ...]:
    """Return a sentence on all heavy operators, and one on each of the two longest in float32."""
    low_dtypes = " and ".join(sorted({find_float_dtype(row) for row in low}))
    time, calls = sum(row.device_or_self_us for row in island), sum(row.calls for row in island)
    low_time, low_calls = sum(row.device_or_self_us for row in low), sum(row.calls for row in low)
    rows = sorted(island, key=lambda row: row.device_or_self_us, reverse=True)[:2]
    return (
        f"Convolutions and matrix products per step: {low_calls:.0f} in {low_dtypes} take {show_time(low_time)}, "
        f"{calls:.0f} in float32 take {show_time(time)}.",
        *(
            f"{row.name} of {row.shapes or 'unknown shape'} in {row.module or row.location or 'an unnamed module'}: "
            f"{show_time(row.device_or_self_us)} per step."
            for row in rows
        ),
    )


def describe_casts(figures: Figures) -> str:
    casts = [row for row in figures.operators if row.name == "aten::_to_copy"]
    # total_us includes aten::copy_, which does the work
    time, calls = sum(row.total_us for row in casts), sum(row.calls for row in casts)
    return f"Conversions of dtype or device take {show_time(time)} in {calls:.0f} calls per step."
