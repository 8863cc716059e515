"""Most of a step does not depend on the batch: more samples per step would cost little.

Time per step = fixed + batch x time per sample. Calling an operator costs the same for any size; the arithmetic grows
with the batch. Reading and updating the weights counts as fixed cost only for batches of a few samples. The parts are
estimated from calls, arithmetic and bytes at half of the device's peak rates; the measured times of operators are not
used, because on a busy machine they are mostly waiting. If the parts explain less than half of the step, nothing is
advised. This rule is for the CPU: an accelerator idles in the fixed part, which the rule `host_gaps` reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from viaduct.profiling.figures import Figures, is_convolution, is_matrix_product, parse_shapes, show_time
from viaduct.profiling.record import Advice, Operator, Step

CERTAINTY = 0.5  # from 0 to 1; of two equal gains, the more certain one is listed first
DISPATCH_US = 2.0
"""Cost of calling an operator from Python; measured on a CPU: 0.9 ms for 469 operators on batches of two samples."""
DOMINATING = 0.6
"""Least share of fixed cost that is reported: at 60 %, 8 times the batch gives 2.1 times the throughput."""
EXPLAINED = 0.5  # least share of a step that the estimated parts must explain together
FEW_SAMPLES = 8  # largest batch for which reading and updating the weights counts as fixed cost
REACHED = 0.5  # assumed share of the peak rates that operators reach
FLOPS_PER_US, BYTES_PER_US = 4e4, 1e4
"""Assumed peak rates of a processor that was not measured: 40 GFLOP/s, 10 GB/s."""
SHORT_US = 20.0
"""Time of a call below which an operator without a formula counts as a view or other bookkeeping."""
MAX_PER_ELEMENT = 1e3
"""Assumed largest number of bytes for each input element that an operator without a formula moves."""
FACTORS = (2, 8)  # larger batches that the advice names, as multiples of the present one


@dataclass(frozen=True)
class Parts:
    """Estimated microseconds of one step."""

    dispatch: float  # calling the operators
    weights: float  # reading the weights in the forward and backward pass
    update: float
    growing: float  # work that grows with the batch: arithmetic, and moving activations

    @property
    def total(self) -> float:
        return self.dispatch + self.weights + self.update + self.growing


def find(figures: Figures) -> Advice | None:
    """Return advice if the estimated fixed cost dominates a step."""
    batch = figures.facts.batch
    if figures.on_accelerator or not figures.operators:
        return None
    parts = estimate_parts(figures)
    fixed = parts.dispatch
    if batch is not None and batch <= FEW_SAMPLES:
        fixed += parts.weights + parts.update
    share = fixed / parts.total if parts.total else 0.0
    computing_us = measure_computing(figures)
    if share < DOMINATING or computing_us <= 0 or parts.total < EXPLAINED * computing_us:
        return None
    share = min(share, fixed / computing_us)
    speedups = [factor / (share + factor * (1 - share)) for factor in FACTORS]
    return Advice(
        title=f"The batch is too small: about {share:.0%} of a step is fixed cost",
        action=(
            f"Take more samples per step: {FACTORS[0]} times as many give about {speedups[0]:.2g} times the samples "
            f"per second, {FACTORS[1]} times as many {speedups[1]:.2g} times, by this model; adapt the learning rate."
        ),
        evidence=describe_parts(figures, parts, computing_us),
        gain_us=share * computing_us * (1 - 1 / FACTORS[1]),
        gain_basis=f"a model: fixed + batch x time per sample; {FACTORS[1]} times the batch pays the fixed part once",
    )


def estimate_parts(figures: Figures) -> Parts:
    rows = [row for row in figures.operators if row.phase != "data"]
    ceilings = figures.profile.ceilings
    bandwidth = REACHED * (ceilings.bandwidth / 1e6 if ceilings else BYTES_PER_US)
    measured_flops = max(ceilings.flops.values(), default=0.0) / 1e6 if ceilings else 0.0
    flops = REACHED * (measured_flops or FLOPS_PER_US)
    heavy = figures.heavy_operators  # convolutions and matrix products
    light = [row for row in rows if row.phase != "update" and not (is_matrix_product(row) or is_convolution(row))]
    return Parts(
        dispatch=DISPATCH_US * sum(row.calls for row in rows),
        weights=sum(count_weight_bytes(row, figures.facts.batch) for row in heavy) / bandwidth,
        update=sum(row.bytes or 0.0 for row in rows if row.phase == "update") / bandwidth,
        growing=sum(row.flops or 0.0 for row in heavy) / flops + sum(map(count_bytes, light)) / bandwidth,
    )


def count_bytes(operator: Operator) -> float:
    """Return the bytes that an operator moves; without a formula, an estimate from its self time."""
    if operator.bytes is not None:
        return operator.bytes
    # An operator that calls other operators for some time moves nothing itself; those are counted on their own.
    calls_others = operator.name.startswith(("aten::", "autograd::")) and operator.total_us > 1.2 * operator.self_us
    if calls_others or operator.self_us < SHORT_US * operator.calls:
        return 0.0
    shapes = parse_shapes(operator.shapes)
    at_full_rate = operator.self_us * BYTES_PER_US
    return min(at_full_rate, MAX_PER_ELEMENT * operator.calls * sum(map(prod, shapes))) if shapes else at_full_rate


def count_weight_bytes(operator: Operator, batch: int | None) -> float:
    """Return the bytes, as float32, of the weights of a convolution or matrix product; 0 if the batch is unknown.

    Weights are the inputs that have no dimension of the batch's size.
    """
    shapes = parse_shapes(operator.shapes)
    return 4.0 * operator.calls * sum(prod(shape) for shape in shapes if batch is not None and batch not in shape)


def measure_computing(figures: Figures) -> float:
    """Return the computing time of the fastest timed step, or the length of a typical recorded step if that is less."""
    timed = min(map(count_computing_us, figures.steps), default=0.0)
    timed *= 1 - max(figures.exposed_shares.values(), default=0.0)  # without waiting in collectives
    return min(timed, figures.facts.recorded_step_us or timed)


def count_computing_us(step: Step) -> float:
    """Return the time of a step without compiling and without waiting for data.

    Without a DataLoader, the time before the forward pass counts as waiting.
    """
    waits = max(0.0, step.data_tail_us or 0.0) if step.loader_wait_us is None else step.loader_wait_us
    return max(0.0, step.iteration_us - waits - step.compile_us)


def describe_parts(figures: Figures, parts: Parts, computing_us: float) -> tuple[str, ...]:
    rows = [row for row in figures.operators if row.phase != "data"]
    calls = sum(row.calls for row in rows)
    batch = f" of {figures.facts.batch} samples" if figures.facts.batch else ""
    measured = sum(row.self_us for row in rows)
    return (
        f"The fastest step{batch} computes for {show_time(computing_us)}. By estimate, its {calls:.0f} operators need "
        f"{show_time(parts.dispatch)} for being called, {show_time(parts.weights)} for reading weights, "
        f"{show_time(parts.update)} for the update, and {show_time(parts.growing)} for arithmetic and activations.",
        f"Measured, operators took {show_time(measured)} of a recorded step, "
        f"{show_time(measured / calls if calls else 0.0)} each.",
    )
