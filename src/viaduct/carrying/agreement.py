"""Agreement of two runs: losses of every step, gradients of the first step, weights at the end.

The same CPU kernels compute both, with the same seed and data, so most migrations agree exactly. A rewrite that adds
in another order changes the last bit, and training amplifies this. The perturbed run measures by how much: it is a run
of the original whose weights were moved by one unit in the last place (`rehearsal/perturbation.py`). The noise of a
value is the relative difference between the perturbed run and the original. A difference of NOISE_FACTOR times the
noise plus EXTRA_UNITS units in the last place is allowed; without a perturbed run the noise is 0.

The noise of a gradient or weight is its own, or the median of its kind if that is larger. Of an even number the lower
median counts, so that of two tensors a noisy one does not excuse the other. The noise of a loss is the largest noise of
the losses up to its step, and at least the median noise of the gradients. Arrays of integers or complex numbers must be
equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from statistics import median_low
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from viaduct.carrying.observations import Arrays, Observations, Rank
from viaduct.comparison.chunks import LARGE_INTEGERS
from viaduct.comparison.measures import Unmeasurable
from viaduct.comparison.measures import measure as compare_arrays

ValueKind = Literal["loss", "gradient", "weight"]
PairKey = tuple[ValueKind, str, int, int | None]  # kind, name, rank and step
AgreementVerdict = Literal["same", "rounding", "differ", "unsure"]  # `Agreement` defines them
NOISE_FACTOR = 16.0  # a difference of this many times the noise is allowed
EXTRA_UNITS = 4.0  # units in the last place that are allowed in addition
# The following three are relative.
UNINFORMATIVE_TOLERANCE = 0.05  # a value with this tolerance or more shows nothing about the migration
MAX_FIRST_LOSS_ROUNDING = 0.02  # if losses of step 0 differ by more between the sides, the reason is not rounding
MAX_PERTURBED_LOSS_ERROR = 0.01  # the same for the original and the perturbed run
NOTHING_MOVED = (
    "The run with moved weights is exactly equal to the original. Perhaps no weight was moved, since only parameters "
    "of modules and trainable TensorFlow variables are; then rounding was not measured."
)
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)
# Variables that the vendors' adapters for TensorFlow, such as npu_bridge, add to the script's own.
ADAPTER_VARIABLES = re.compile(
    r"(?:^|/)(?:loss_scale|good_steps|bad_steps|current_loss_scale|iterations_per_loop)(?:_\d+)?$"
)


@dataclass(frozen=True)
class ValuePair:
    """One loss or tensor of both sides. `noise` and `allowed` are 0 until `set_tolerances` sets them."""

    kind: ValueKind
    name: str
    rank: int
    step: int | None
    left: float  # the original's loss, or the norm of its tensor; NaN if it has none
    right: float  # the migrated script's loss or norm
    error: float  # difference relative to the original's norm; infinite if there is none (`measure_distance`) or `why`
    # Machine epsilon of the dtype of the original's tensor, 0 if it holds no real floats; of float32 for every loss.
    unit: float = FLOAT32_EPSILON
    why: str = ""  # why there is nothing to compare: one side lacks the value, or the shapes differ
    noise: float = 0.0  # relative difference that rounding causes, as the module's docstring defines it
    allowed: float = 0.0  # the largest `error` that rounding explains

    @property
    def same(self) -> bool:
        """Return True if both sides have equal values. NaN equals NaN, 0.0 equals -0.0, and dtypes may differ."""
        return self.error == 0 and not self.why

    @property
    def is_informative(self) -> bool:
        """Return True if the tolerance is small enough for a mismatch to be visible."""
        return self.allowed < UNINFORMATIVE_TOLERANCE

    @property
    def bad(self) -> bool:
        """Return True if there is a `why`, or if the pair is informative and its error is larger than allowed."""
        return bool(self.why) or (self.is_informative and not self.error <= self.allowed)

    @property
    def key(self) -> PairKey:
        return self.kind, self.name, self.rank, self.step


@dataclass(frozen=True)
class Agreement:
    """Verdict on all pairs, with remarks for the user.

    "same": all recorded values are equal. "rounding": not all are equal, and no pair is bad. "differ": a pair is bad.
    "unsure": no loss was recorded; or bits differ, and the perturbed run failed (`carry.judge_agreement`) or differs so
    much that the original is probably not deterministic. The pairs of an unsure agreement have no tolerance.
    """

    verdict: AgreementVerdict
    pairs: list[ValuePair]
    remarks: list[str] = field(default_factory=list)

    @property
    def bad(self) -> list[ValuePair]:
        """Return the bad pairs. For an unsure verdict, which sets no tolerance, these are all that are not equal."""
        return [pair for pair in self.pairs if pair.bad]

    @property
    def first_bad(self) -> ValuePair | None:
        """Return the first bad pair in the order: loss of step 0, gradients of step 0, later losses, final weights."""
        return min(self.bad, key=make_training_key, default=None)

    def pairs_of(self, kind: ValueKind) -> list[ValuePair]:
        return [pair for pair in self.pairs if pair.kind == kind]

    def informative_pairs(self, kind: ValueKind) -> list[ValuePair]:
        """Return the pairs of one kind that are informative or have a `why`: those that are judged."""
        return [pair for pair in self.pairs_of(kind) if pair.is_informative or pair.why]


def make_training_key(pair: ValuePair) -> tuple[float, int, int]:
    """Return a sort key for the order of training: step (a weight is after all), gradient after loss, rank."""
    if pair.kind == "weight":
        return math.inf, 2, pair.rank
    return pair.step or 0, pair.kind == "gradient", pair.rank


# ---- pairs of both sides, with their differences


def pair_observations(left: Observations, right: Observations) -> list[ValuePair]:
    """Return the pairs of both sides, without tolerances; `left` is the original."""
    ours, theirs = ({rank.number: rank for rank in side.ranks} for side in (left, right))
    return [pair for number in sorted({*ours, *theirs}) for pair in pair_ranks(ours.get(number), theirs.get(number))]


def pair_ranks(left: Rank | None, right: Rank | None) -> Iterator[ValuePair]:
    """Yield the pairs of one rank. If only one side has the rank, this is one pair of losses with a `why`."""
    if left is None or right is None:
        number = (left or right or Rank(0)).number
        side = "the migrated script" if left is None else "the original"
        yield ValuePair("loss", "loss", number, 0, math.nan, math.nan, math.inf, why=f"only {side} has a rank {number}")
        return
    yield from pair_losses(left, right)
    yield from pair_arrays("gradient", left.gradients, right.gradients, left.number)
    yield from pair_arrays("weight", left.weights, right.weights, left.number)


def pair_losses(left: Rank, right: Rank) -> Iterator[ValuePair]:
    for step, (ours, theirs) in enumerate(zip_longest(left.losses, right.losses)):
        for index, (a, b) in enumerate(zip_longest(ours or [], theirs or [])):
            name = name_loss(index)
            if a is None or b is None:
                why = f"only the {'migrated script' if a is None else 'original'} has it"
                a, b = (math.nan if loss is None else loss for loss in (a, b))
                yield ValuePair("loss", name, left.number, step, a, b, math.inf, why=why)
            else:
                yield ValuePair("loss", name, left.number, step, a, b, measure_distance(np.asarray(a), np.asarray(b)))


def name_loss(index: int) -> str:
    """Return the name of a loss by its position among the losses of a step."""
    return "loss" if index == 0 else f"loss {index + 1}"


def pair_arrays(kind: ValueKind, left: Arrays, right: Arrays, rank: int) -> Iterator[ValuePair]:
    """Yield the pairs of arrays by name, without ADAPTER_VARIABLES that only the migrated script has."""
    step = 0 if kind == "gradient" else None
    for name in [*left, *(name for name in right if name not in left)]:
        a, b = left.get(name), right.get(name)
        if a is None and ADAPTER_VARIABLES.search(name):
            continue
        why = describe_mismatch(a, b)
        norms = compute_norm(a), compute_norm(b)
        if a is None or b is None or why:
            yield ValuePair(kind, name, rank, step, *norms, math.inf, why=why)
        else:
            yield ValuePair(kind, name, rank, step, *norms, measure_distance(a, b), find_epsilon(a))


def describe_mismatch(left: NDArray[Any] | None, right: NDArray[Any] | None) -> str:
    """Return why two arrays cannot be compared; empty if they can."""
    if right is None:
        return "only the original has it"
    if left is None:
        return "only the migrated script has it"
    if left.shape != right.shape:
        return f"its shape is {list(left.shape)} in the original, {list(right.shape)} after the migration"
    return ""


def measure_distance(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the Euclidean distance relative to the original's norm, or infinity where no relative distance exists.

    It is infinite if the arrays differ and one of them holds integers or bools, if values that are not finite are at
    different positions, if only the original is zero, or if only one array is complex.
    """
    dtypes = {str(left.dtype), str(right.dtype)}
    is_rounded = len(dtypes) > 1 and not dtypes.isdisjoint(LARGE_INTEGERS)  # NumPy compares these as float64
    if not (is_rounded and left.size) and np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
        return 0.0
    try:
        measures = compare_arrays(right, left)  # its second argument is the golden side: the original
    except Unmeasurable:
        return math.inf
    if left.dtype.kind not in "fc" or right.dtype.kind not in "fc":
        return 0.0 if measures.identical else math.inf
    if measures.mismatched or not measures.right.rms > 0:  # NaN: no element is finite
        return math.inf
    # Not `relative_euclidean`, which is 0 for every original whose norm is below 2.2e-16.
    return measures.root_mean_square / measures.right.rms


def compute_norm(array: NDArray[Any] | None) -> float:
    """Return the Euclidean norm of an array, or NaN if it is missing, empty or complex."""
    if array is None or not array.size or array.dtype.kind not in "biuf":
        return math.nan
    return float(np.linalg.norm(array.astype(np.float64)))


def find_epsilon(original: NDArray[Any]) -> float:
    """Return the machine epsilon of an array; 0 if it holds no real floats.

    The migrated script's dtype does not count: a migration to half precision must not bring its own tolerance.
    """
    return float(np.finfo(original.dtype).eps) if original.dtype.kind == "f" else 0.0


# ---- judging


def needs_perturbed_run(pairs: list[ValuePair]) -> bool:
    """Return True if values that both sides have differ, and rounding may be the reason."""
    comparable = [pair for pair in pairs if not pair.why]
    first_losses = [pair for pair in comparable if pair.kind == "loss" and pair.step == 0]
    is_near = all(pair.error <= MAX_FIRST_LOSS_ROUNDING for pair in first_losses)
    return is_near and not all(pair.same for pair in comparable)


def judge(
    pairs: list[ValuePair], perturbed_pairs: list[ValuePair] | None = None, is_deterministic: bool = False
) -> Agreement:
    """Return the agreement of the pairs of the original and the migrated run.

    `perturbed_pairs`: the pairs of the original and the perturbed run, if there was one. `is_deterministic`: the
    original was run twice with the same seed, and both runs recorded equal values; then a perturbed run that is far off
    shows how much the script amplifies rounding.
    """
    if not any(pair.kind == "loss" for pair in pairs):
        return Agreement("unsure", pairs, ["No loss was recorded, so the training could not be compared step by step."])
    if all(pair.same for pair in pairs):
        return Agreement("same", pairs)
    remark = describe_nondeterminism(perturbed_pairs or [])
    lacks_any = any(pair.why for pair in pairs)  # a difference whatever the noise is
    if remark and not (is_deterministic or lacks_any):
        return Agreement("unsure", pairs, [remark])
    judged = set_tolerances(pairs, perturbed_pairs or [])
    verdict: AgreementVerdict = "differ" if any(pair.bad for pair in judged) else "rounding"
    remarks = list(describe_uninformative(judged))
    if perturbed_pairs and all(pair.same for pair in perturbed_pairs):
        remarks.append(NOTHING_MOVED)
    return Agreement(verdict, judged, remarks)


def describe_nondeterminism(perturbed_pairs: list[ValuePair]) -> str:
    """Return a remark if the perturbed run differs by more than rounding can explain; else ""."""
    first_losses = [pair for pair in perturbed_pairs if pair.kind == "loss" and pair.step == 0]
    is_far_off = any(pair.error > MAX_PERTURBED_LOSS_ERROR for pair in first_losses)
    if is_far_off or any(pair.why for pair in perturbed_pairs):
        return (
            "The original is probably not deterministic: a run of it with the same seed, and weights moved by one unit "
            f"in the last place, has a loss more than {MAX_PERTURBED_LOSS_ERROR:.0%} off in its first step, or other "
            "steps, tensors or shapes. Randomness that no seed controls (the clock, os.urandom, the order of threads) "
            "would hide the effects of the migration."
        )
    return ""


def set_tolerances(pairs: list[ValuePair], perturbed_pairs: list[ValuePair]) -> list[ValuePair]:
    """Return the pairs with noise and tolerance; `perturbed_pairs`: the pairs of the original and the perturbed run."""
    noise = {pair.key: pair.error for pair in perturbed_pairs if shows_noise(pair)}
    medians = {
        kind: median_low([error for (key_kind, *_), error in noise.items() if key_kind == kind] or [0.0])
        for kind in ("gradient", "weight")
    }
    loss_noise = accumulate_loss_noise(perturbed_pairs, noise, medians["gradient"])
    judged = []
    for pair in pairs:
        if pair.kind == "loss":
            own_noise = loss_noise.get(pair.step or 0, 0.0)
        else:
            own_noise = max(noise.get(pair.key, 0.0), medians[pair.kind])
        allowed = NOISE_FACTOR * own_noise + EXTRA_UNITS * pair.unit if pair.unit else 0.0
        judged.append(replace(pair, noise=own_noise, allowed=allowed))
    return judged


def shows_noise(pair: ValuePair) -> bool:
    """Return True if the error of a pair of the original and the perturbed run is noise.

    An infinite error is noise if a value is NaN or infinite: rounding may explain any value then. It is none if only
    the original is zero.
    """
    are_finite = math.isfinite(pair.left) and math.isfinite(pair.right)
    return not pair.why and (math.isfinite(pair.error) or not are_finite)


def accumulate_loss_noise(
    perturbed_pairs: list[ValuePair], noise: dict[PairKey, float], minimum: float
) -> dict[int, float]:
    """Return the noise of the losses by step: the largest up to that step, since a single value may agree by chance.

    `minimum`: no step has less noise than this.
    """
    by_step: dict[int, float] = {}
    for pair in perturbed_pairs:
        if pair.kind == "loss" and pair.step is not None:
            by_step[pair.step] = max(by_step.get(pair.step, minimum), noise.get(pair.key, 0.0))
    for before, after in pairwise(sorted(by_step)):
        by_step[after] = max(by_step[after], by_step[before])
    return by_step


def describe_uninformative(pairs: list[ValuePair]) -> Iterator[str]:
    """Yield remarks on values that are not informative."""
    losses = [pair.step for pair in pairs if pair.kind == "loss" and not pair.is_informative and pair.step is not None]
    if losses:
        yield (
            f"From step {min(losses)} on the script amplifies one unit in the last place to more than "
            f"{UNINFORMATIVE_TOLERANCE / NOISE_FACTOR:.1%} of the loss, so only earlier losses are compared."
        )
    for kind, moment in (("gradient", "of the first step"), ("weight", "at the end")):
        hidden = [pair for pair in pairs if pair.kind == kind and not pair.is_informative]
        if hidden:
            count = sum(pair.kind == kind for pair in pairs)
            verb = "is" if len(hidden) == 1 else "are"
            names = hidden[0].name + (" …" if len(hidden) > 1 else "")
            yield f"{len(hidden)} of {count} {kind}s {moment} {verb} mostly rounding and not compared: {names}"
