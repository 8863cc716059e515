"""The explanation of a comparison: its first divergence (origin) with neighbours, likely causes and advice."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from viaduct.comparison.calls import compute_error
from viaduct.comparison.causes import amplifying_structure, find_causes
from viaduct.comparison.divergence import Divergence, Opener
from viaduct.comparison.judge import Judgement, WeightDrift
from viaduct.comparison.records import SEVERITY, Cause, Explanation, Neighbour, Origin, Row
from viaduct.comparison.storage import open_tensor

MAX_HOPS = 2  # neighbours up to this distance from the origin are shown
MAX_PER_DISTANCE = 20  # neighbours at one distance before or after the origin
ACCUMULATED = "accumulated rounding"
ADVICE = (
    "No operator stands out: perhaps the formats or the order of sums differ. If this precision is meant, give "
    "thresholds for it (--cosine, --euclid); if not, dump both sides in float32 with --deterministic and compare again."
)
MIN_LAYERS = 6  # number of outputs that differ; with fewer it is not known whether errors are amplified
MIN_AMPLIFICATION = 100.0  # errors of this many times the sum of equal roundings are amplified
AMPLIFICATION_ADVICE = (
    "No operator stands out: the layers seem to enlarge what comes in, one after the other. Look at residual branches "
    "without a norm or with a large gain, and at the first layers' precision; use float32 there, scale the branches "
    "down, or compare fewer layers at a time, each from equal inputs."
)


def explain(judgement: Judgement, producers: Mapping[str, Sequence[str]], open_: Opener = open_tensor) -> Explanation:
    """Return the first origin with its likely causes and neighbours, or why there is no origin.

    `producers`: operator -> the operators whose outputs it reads.
    """
    if not judgement.origins:
        if judgement.error_range is None:
            return explain_no_mismatch(judgement.rows)
        return explain_accumulation(judgement, *judgement.error_range)
    origin, *further = judgement.origins
    divergence = Divergence(judgement.rows, origin, open_)
    causes = find_causes(divergence)
    hops = find_linked_neighbours(origin, producers)
    edges = [(other, op) for op in hops for other in producers.get(op, ()) if other in hops]
    neighbours = make_neighbours(judgement.rows, origin, hops if edges else find_adjacent_calls(judgement.rows, origin))
    headline, notes = make_headline(origin, causes), tuple(divergence.failures)
    return Explanation(headline, origin, tuple(further), causes, neighbours, tuple(edges), notes)


def explain_no_mismatch(rows: Sequence[Row]) -> Explanation:
    """Return the explanation if nothing is bad."""
    compared = sum(row.is_compared for row in rows)
    refused = [row for row in rows if row.result == "refused"]
    why = f"; the first: {refused[0].reason.rstrip('.')}" if refused and refused[0].reason else ""
    if not compared:
        return Explanation(f"nothing could be compared{why}.", None)
    compared_tensors = "the one compared tensor is" if compared == 1 else f"all {compared:,} compared tensors are"
    passed = f"{compared_tensors} within {'its' if compared == 1 else 'their'} thresholds"
    if flagged := sum(row.result == "flag" for row in rows):  # a flag may be beyond a threshold, with a harmless reason
        passed += f" or flagged ({flagged:,})"
    if partly := sum(row.measures is not None and row.measures.statistics_only for row in rows):
        passed += f", {partly:,} of them judged by dumped statistics alone"
    if not refused:
        return Explanation(f"{passed}.", None)
    uncompared = f"{len(refused):,} could not be compared, so the sides do not pass (exit code 1)"
    return Explanation(f"{passed}, but {uncompared}{why}.", None)


def explain_accumulation(judgement: Judgement, low: float, high: float) -> Explanation:
    """Return the explanation if errors grow, from `low` to `high`, without a single origin."""
    grows = f"the error grows from {low:.2g} to {high:.2g} of the golden size"
    evidence = f"{grows}; no operator adds a jump of its own{describe_formats(judgement.rows)}"
    if judgement.weight_drift is not None:
        return explain_drift(judgement.weight_drift, evidence)
    cause = Cause(ACCUMULATED, evidence, ADVICE, confidence=0.8)
    if (amplified := find_amplification(judgement.rows)) is not None:
        headline = "no single origin: the network seems to enlarge small differences from layer to layer."
        return Explanation(headline, None, causes=(amplified, replace(cause, confidence=0.4)))
    headline = "no single origin: errors grow along the network, as if rounding accumulates."
    return Explanation(headline, None, causes=(cause,))


def find_amplification(rows: Sequence[Row]) -> Cause | None:
    """Return the cause if errors grow far beyond a sum: n equal roundings add up to at most n times one of them."""
    first = min(row.tensor.step for row in rows if row.result == "bad")
    outputs = [row for row in rows if row.tensor.role == "output" and row.tensor.step == first]
    outputs.sort(key=lambda row: (row.tensor.rank, row.tensor.order))
    errors = [error for row in outputs if 0 < (error := compute_error(row)) < math.inf]
    if len(errors) < MIN_LAYERS:
        return None
    early, late = statistics.median(errors[: MIN_LAYERS // 2]), max(errors)
    if late < MIN_AMPLIFICATION * len(errors) * early:
        return None
    factor = (late / early) ** (1 / max(1, errors.index(late)))  # from one output to the next
    evidence = (
        f"the error grows from {early:.2g} to {late:.2g} over {errors.index(late) + 1} outputs, {factor:.3g} times an "
        f"output; rounding that only adds up would give about {len(errors) * early:.2g} at most"
    )
    return Cause(amplifying_structure.NAME, evidence, AMPLIFICATION_ADVICE, confidence=0.85)


def explain_drift(drift: WeightDrift, growth: str) -> Explanation:
    """Return the explanation if weights drifted apart between dumped steps; `growth` describes how the errors grow."""
    steps = f"{drift.before} to {drift.after}"
    counts = f"{drift.weights} of {drift.all_weights} weights"
    evidence = f"{counts} are bad as step {drift.after} begins, none was as step {drift.before} began"
    advice = f"Dump every step from {steps} (--dump-steps {drift.before}-{drift.after}) to see where they part."
    cause = Cause(ACCUMULATED, f"{evidence}; {growth}", f"{advice} {ADVICE}", confidence=0.6)
    return Explanation(f"no single origin: the sides drift apart over steps {steps}.", None, causes=(cause,))


def describe_formats(rows: Sequence[Row]) -> str:
    """Return the most common pair of different dtypes, as the end of a sentence; empty if all dtypes are equal."""
    pairs = [(row.pair.left.dtype, row.pair.right.dtype) for row in rows if row.pair.left and row.pair.right]
    different = Counter(pair for pair in pairs if pair[0] != pair[1])
    return "".join(
        f"; the left side has {left} where the right has {right}" for (left, right), _ in different.most_common(1)
    )


def make_headline(origin: Origin, causes: Sequence[Cause]) -> str:
    part = "the sides part at" if origin.are_inputs_known else "the sides part at or before"
    beginnings = {"operator": part, "parameter": "a weight differs:", "input": "the input differs at"}
    cause = f"; it looks like {causes[0].name}" if causes else "; no known cause fits"
    return f"{beginnings[origin.kind]} {origin.op} (step {origin.step}){cause}."


def find_linked_neighbours(origin: Origin, producers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the operators up to MAX_HOPS edges from the origin with their distances, negative for producers."""
    consumers: dict[str, list[str]] = defaultdict(list)
    for op, others in producers.items():
        for other in others:
            consumers[other].append(op)
    hops = {origin.op: 0}
    for links, direction in ((producers, -1), (consumers, 1)):
        front = [origin.op]
        for distance in range(1, MAX_HOPS + 1):
            front = [op for known in front for op in links.get(known, ()) if op not in hops]
            for op in front[:MAX_PER_DISTANCE]:
                hops.setdefault(op, direction * distance)
    return hops


def find_adjacent_calls(rows: Sequence[Row], origin: Origin) -> dict[str, int]:
    """Return the operators that ran just before (negative distances) and just after the origin."""
    here = [row for row in rows if (row.tensor.step, row.tensor.rank) == (origin.step, origin.rank)]
    ran = [row for row in here if row.tensor.role in ("input", "output")]
    ops = list(dict.fromkeys(row.op for row in sorted(ran, key=lambda row: row.tensor.order)))
    position = ops.index(origin.op) if origin.op in ops else -1
    span = range(max(0, position - MAX_HOPS), min(len(ops), position + MAX_HOPS + 1)) if position >= 0 else range(0)
    return {origin.op: 0} | {ops[index]: index - position for index in span}


def make_neighbours(rows: Sequence[Row], origin: Origin, hops: Mapping[str, int]) -> tuple[Neighbour, ...]:
    """Return the neighbours with their results, in order of their distances. `hops`: the distance of each operator."""
    rows_by_op: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.op in hops and (row.tensor.step, row.tensor.rank) == (origin.step, origin.rank):
            rows_by_op[row.op].append(index)
    ordered = sorted(hops.items(), key=lambda item: item[1])
    return tuple(make_neighbour(rows, op, distance, rows_by_op[op]) for op, distance in ordered)


def make_neighbour(rows: Sequence[Row], op: str, hops: int, row_indices: Sequence[int]) -> Neighbour:
    """Return an operator with its worst row and the largest error of its outputs, or else of all its tensors."""
    outputs = [index for index in row_indices if rows[index].tensor.role == "output"] or list(row_indices)
    if not outputs:
        return Neighbour(op, "", hops, "refused", None, None)
    worst = max(outputs, key=lambda index: (-SEVERITY.index(rows[index].result), compute_error(rows[index])))
    measured = [compute_error(rows[index]) for index in outputs if rows[index].measures is not None]
    return Neighbour(op, rows[worst].tensor.op_type, hops, rows[worst].result, max(measured, default=None), worst)
