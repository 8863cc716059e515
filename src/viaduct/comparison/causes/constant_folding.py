"""The left side computed a constant when its graph was compiled; the right side computes it in every run.

The right side has a tensor that depends on weights alone and has no counterpart on the left. The constant that the left
used is unknown. It is solved for from the left's input and output, as a factor, an addend or the weight of a layer, and
must equal the right side's tensor up to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share, fit_factor, has_finite_floats, rms
from viaduct.comparison.judge import find_rounding_unit
from viaduct.comparison.records import Array, Cause, Row
from viaduct.comparison.replay import (
    apply_kernels,
    gather_windows,
    reshape_to_convolution,
    sample_outputs,
    solve_geometry,
)

NAME = "constant folding"
ADVICE = (
    "No change is needed if the difference is rounding: a folded constant is computed once, in the compiler's "
    "precision. To compare without it, leave constant folding off on the left, or store the constant in the checkpoint."
)
ROUNDINGS = 64.0  # a constant may be the result of several operators
ENOUGH = 0.9  # share of the difference that the solved constant must explain
MAX_UNKNOWN = 1024  # weights of one output channel that are solved for
MAX_DISTANCE = 12  # places between a constant and the origin, in the right side's order of execution


def find_cause(divergence: Divergence) -> Cause | None:
    arrays, x = divergence.load_arrays(), divergence.load_row(divergence.find_first_input())
    if divergence.role != "output" or arrays is None or x is None or not has_finite_floats(arrays):
        return None
    for row in find_constants(divergence):
        constant = divergence.load_right(row)
        if constant is None or constant.dtype.kind != "f":
            continue
        solution = solve_elementwise(x, arrays, constant) or solve_layer(x, arrays, constant)
        if solution is None:
            continue
        used, share, kind = solution
        error = rms(used - constant) / (rms(constant) or 1.0)
        unit = max(find_rounding_unit(row), find_rounding_unit(divergence.row))
        if share > ENOUGH and 0 < error <= ROUNDINGS * unit:
            evidence = (
                f"{row.op} of the right side seems to depend on weights alone and has no partner on the left; "
                f"with a {kind} that is {error / unit:.2g} roundings from it, {share:.0%} of the difference is gone"
            )
            return Cause(NAME, evidence, ADVICE, confidence=0.95)
    return None


def find_constants(divergence: Divergence) -> list[Row]:
    """Return right-only outputs that seem to depend on weights alone, nearest first."""
    constants = [
        row
        for row in divergence.step_rows
        if row.pair.left is None and row.pair.right is not None and row.tensor.role == "output"
        if 0 < divergence.right_order - row.tensor.order <= MAX_DISTANCE and is_constant(divergence, row)
    ]
    return sorted(constants, key=lambda row: -row.tensor.order)


def is_constant(divergence: Divergence, row: Row) -> bool:
    """Return True if an operator's output seems to depend on weights alone.

    Its dumped inputs must equal parameters or other constants. Without dumped inputs, its output must be equal in all
    dumped steps. If only one step was dumped, an operator with parameters counts.
    """
    inputs = divergence.find_rows("input", op=row.op)
    if inputs:
        return all(is_known_constant(divergence, other) for other in inputs)
    others = [
        values
        for other in divergence.rows
        if other.op == row.op and other.tensor.role == "output" and other.tensor.step != row.tensor.step
        if (values := divergence.load_right(other)) is not None
    ]
    values_here = divergence.load_right(row)
    if others and values_here is not None:
        return all(np.array_equal(values, values_here) for values in others)
    return bool(divergence.find_rows("parameter", op=row.op))


def is_known_constant(divergence: Divergence, row: Row) -> bool:
    """Return True if the row equals a parameter or another constant."""
    values = divergence.load_right(row)
    if values is None:
        return False
    for other in divergence.rows:
        is_parameter = other.tensor.role == "parameter"
        is_right_only = other.tensor.role == "output" and other.pair.left is None
        can_be_source = is_parameter or (is_right_only and other.tensor.order < row.tensor.order)
        if other is row or not can_be_source or other.tensor.shape != row.tensor.shape:
            continue
        source = divergence.load_right(other)
        if source is not None and np.array_equal(source, values):
            return is_parameter or is_constant(divergence, other)
    return False


def solve_elementwise(x: ArrayPair, y: ArrayPair, constant: Array) -> tuple[Array, float, str] | None:
    """Return the factor or addend that the left used, the share of the difference it explains, and what it is.

    Return None if the right's output is neither the product nor the sum (nor difference) of input and constant.
    """
    if x.right.shape != y.right.shape or constant.ndim > y.right.ndim or not np.any(constant):
        return None
    broadcast = reshape_for_broadcast(constant, y.right.shape)
    if broadcast is None:
        return None
    size = rms(y.right)
    axes = tuple(axis for axis in range(y.right.ndim) if broadcast.shape[axis] == 1)
    if math.prod(y.right.shape[axis] for axis in axes) < 4:
        return None
    if rms(x.right * broadcast - y.right) <= 0.02 * size:
        used = fit_factor(y.left, x.left, axes, keepdims=True)
        return np.reshape(used, constant.shape), explained_share(x.left * used, y), "factor"
    for sign in (1.0, -1.0):
        if rms(x.right + sign * broadcast - y.right) <= 0.02 * size:
            used = sign * (y.left - x.left).mean(axes, keepdims=True)
            return np.reshape(used, constant.shape), explained_share(x.left + sign * used, y), "addend"
    return None


def reshape_for_broadcast(constant: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the constant with the output's number of axes, aligned at the last axis or by channel, or None."""
    trailing = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    if all(size in (1, output_size) for size, output_size in zip(trailing.shape, shape, strict=True)):
        return trailing
    if constant.ndim == 1 and len(shape) > 2 and constant.shape[0] == shape[1]:
        return constant.reshape(1, -1, *[1] * (len(shape) - 2))
    return None


def solve_layer(x: ArrayPair, y: ArrayPair, constant: Array) -> tuple[Array, float, str] | None:
    """Return the weight that the left's layer used, like `solve_elementwise`; None if it cannot be solved for."""
    convolution = reshape_to_convolution(x.left, constant, y) if constant.ndim in (2, 4) else None
    if convolution is None or math.prod(constant.shape[1:]) > MAX_UNKNOWN:
        return None
    x_NCHW, weight, outputs = convolution
    replay = solve_geometry(x_NCHW, weight, np.zeros(weight.shape[0]), outputs)
    if replay is None or x_NCHW.shape[1] != weight.shape[1]:
        return None
    unknown = math.prod(weight.shape[1:])
    rng = np.random.default_rng(5)
    count = min(4 * unknown + 64, outputs.left[:, 0].size)
    examples, rows, columns = outputs.left.shape[0], *outputs.left.shape[2:]
    positions = (rng.integers(0, examples, count), rng.integers(0, rows, count), rng.integers(0, columns, count))
    patches = gather_windows(x_NCHW, weight.shape[2:], positions, replay.geometry)
    sampled = sample_outputs(outputs, positions)
    solution, _, rank, _ = np.linalg.lstsq(patches.reshape(count, -1), sampled.left, rcond=None)
    if rank < unknown or count < 1.5 * unknown:
        return None
    used = solution.T.reshape(weight.shape)
    return used.reshape(constant.shape), explained_share(apply_kernels(patches, used), sampled), "weight"
