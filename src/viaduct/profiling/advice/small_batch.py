"""Most of a step does not depend on the batch: more samples per step would cost little.

Time per step = fixed + batch x time per sample. Fixed is what remains of a step without waits, compilation and exposed
communication once the arithmetic of the forward and backward pass is taken off, in operators longer than SHORT_US:
Python, dispatch, short operators, and the update, whose work depends on the parameters alone. Accelerators idle
meanwhile, which host_gaps measures from kernels.
"""

from __future__ import annotations

from math import inf, prod

from viaduct.profiling.figures import Figures, parse_shapes, show_time
from viaduct.profiling.record import Advice, Operator

CERTAINTY = 0.5
SHORT_US = 20.0
"""Time below which an operator on the CPU is mostly dispatch (a few µs) and set-up of threads, not arithmetic."""
DOMINATES = 0.6
"""Share of a step from which the fixed cost dominates: at 60 %, eight times the batch doubles the throughput."""
SLOWEST_PER_US = 1e3
"""Operations plus bytes per microsecond that any processor reaches, 1 GFLOP/s: what an operator takes beyond that is
not arithmetic but waiting, such as for the threads of a busy machine to meet."""
MOST_PER_ELEMENT = 1e3
"""Operations on each element of an input that an operator is given credit for where nothing is known of it."""
FACTORS = (2, 8)


def find(figures: Figures) -> Advice | None:
    work = sum(map(count_work, figures.operators))
    step = step_us(figures)
    fixed = step - work
    if figures.on_accelerator or not figures.operators or fixed < DOMINATES * step:
        return None
    speedups = [speed_up(fixed, step, factor) for factor in FACTORS]
    largest = FACTORS[-1]
    return Advice(
        name="small_batch",
        title=f"The batch is too small: {fixed / step:.0%} of a step is fixed cost",
        action=(
            f"Take more samples per step: {FACTORS[0]} times as many give {speedups[0]:.2g} times the samples per "
            f"second, {largest} times as many {speedups[1]:.2g} times, by this model; adapt the learning rate."
        ),
        evidence=describe(figures, step, fixed, work),
        gain_us=fixed * (1 - 1 / largest),
        gain_basis=f"fixed + batch x time per sample, of which {largest} times the batch pays the fixed part once",
    )


def count_work(operator: Operator) -> float:
    """Return the time of an operator that grows with the batch: none of short ones, else what arithmetic can take."""
    if operator.phase == "update" or not operator.calls or operator.self_us / operator.calls < SHORT_US:
        return 0.0
    if operator.flops is None and operator.bytes is None:
        contains_others = operator.name.startswith("aten::") and operator.total_us > 1.2 * operator.self_us
        return 0.0 if contains_others else min(operator.self_us, guess_operations(operator) / SLOWEST_PER_US)
    return min(operator.self_us, ((operator.flops or 0.0) + (operator.bytes or 0.0)) / SLOWEST_PER_US)


def guess_operations(operator: Operator) -> float:
    """Return the most that an operator of unknown arithmetic can do with its inputs; no limit without shapes."""
    shapes = parse_shapes(operator.shapes)
    return sum(map(prod, shapes)) * operator.calls * MOST_PER_ELEMENT if shapes else inf


def step_us(figures: Figures) -> float:
    """Return the part of a step in which something is computed; of timed or recorded steps, whichever is shorter.

    Recording makes a step longer. Where the timed steps are the longer ones, other work disturbed them.
    """
    waits = figures.data_tail_us if figures.loader_wait_us is None else figures.loader_wait_us
    timed = figures.iteration_us * (1 - max(figures.exposed_shares.values(), default=0.0)) - waits - figures.compile_us
    return min(timed, figures.facts.recorded_step_us or timed)


def speed_up(fixed: float, step: float, factor: int) -> float:
    """Return by how much the samples per second grow with a larger batch."""
    return step * factor / (fixed + factor * (step - fixed))


def describe(figures: Figures, step: float, fixed: float, work: float) -> tuple[str, ...]:
    """Return the parts of the step and the number of short operators."""
    short = sum(row.calls for row in figures.operators if not count_work(row))
    batch = f" of {figures.facts.batch} samples" if figures.facts.batch else ""
    return (
        f"A step{batch} computes for {show_time(step)}; operators longer than {SHORT_US:.0f} µs in the "
        f"forward and backward pass take {show_time(work)} of it.",
        f"{show_time(fixed)} remain for Python, dispatch, {short:.0f} short operators and the update "
        f"({show_time(figures.update_tail_us)}).",
    )
