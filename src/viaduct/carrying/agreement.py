"""Whether two rehearsals computed the same: losses of every step, gradients of the first, weights at the end.

The same kernels compute both, with the same seed and data, so that most migrations agree in every bit. Where a rewrite
takes a sum in another order the last bit changes, and training magnifies it: by how much, a run of the original shows
whose weights were moved by one unit in the last place (`rehearsal/shaking.py`). FACTOR times that drift is allowed, for
each tensor its own; a wrong number is beyond it by orders of magnitude. What was not magnified may differ by a few
units in the last place. Integers, counters of steps among them, are equal or not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from viaduct.carrying.observed import Arrays, Observed, Rank
from viaduct.comparison.measures import Unmeasurable
from viaduct.comparison.measures import measure as compare_arrays

Kind = Literal["loss", "gradient", "weight"]
Verdict = Literal["same", "rounding", "differ", "unsure"]
FACTOR = 16.0  # times the drift of the shaken run
UNITS = 4.0  # in the last place, where the shaken run shows less
TELLS = 0.05  # beyond it a relative drift tells nothing about the migration any more
OBVIOUS = 0.02  # of the first loss: no rounding does that
REPEATS = 0.01  # of the first loss: a run that differs by more from its shaken self does not repeat itself
SINGLE = float(np.finfo(np.float32).eps)
# What the adapters keep beside the script's own variables.
OF_THE_ADAPTER = re.compile(
    r"(?:^|/)(?:loss_scale|good_steps|bad_steps|current_loss_scale|iterations_per_loop)(?:_\d+)?$"
)


@dataclass(frozen=True)
class Pair:
    """One loss or tensor of both sides. `error` is relative to the original's size; `noise`, the shaken run's."""

    kind: Kind
    name: str
    rank: int
    step: int | None
    left: float  # the loss itself, or the size of the tensor
    right: float
    error: float
    unit: float = SINGLE
    why: str = ""  # where there is nothing to measure
    noise: float = 0.0
    allowed: float = 0.0

    @property
    def same(self) -> bool:
        return self.error == 0 and not self.why

    @property
    def told(self) -> bool:
        """Whether it can show a mistake at all."""
        return self.allowed < TELLS

    @property
    def bad(self) -> bool:
        return bool(self.why) or (self.told and not self.error <= self.allowed)

    @property
    def key(self) -> tuple[Kind, str, int, int | None]:
        return self.kind, self.name, self.rank, self.step


@dataclass(frozen=True)
class Agreement:
    verdict: Verdict
    pairs: list[Pair]
    remarks: list[str] = field(default_factory=list)

    @property
    def bad(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.bad]

    @property
    def first(self) -> Pair | None:
        """The earliest in the course of training: a step's losses, the first step's gradients, the weights last."""
        return min(self.bad, key=moment, default=None)

    @property
    def earliest(self) -> Pair | None:
        """The earliest that is not the same, judged or not."""
        return min((pair for pair in self.pairs if not pair.same), key=moment, default=None)

    def of(self, kind: Kind) -> list[Pair]:
        return [pair for pair in self.pairs if pair.kind == kind]

    def judged(self, kind: Kind) -> list[Pair]:
        """Those that can show a mistake."""
        return [pair for pair in self.of(kind) if pair.told or pair.why]


def moment(pair: Pair) -> tuple[float, int, int]:
    if pair.kind == "weight":
        return math.inf, 2, pair.rank
    return pair.step or 0, pair.kind == "gradient", pair.rank


# ---- measuring


def measure(left: Observed, right: Observed) -> list[Pair]:
    """Every pair of both sides, nothing allowed yet."""
    ours, theirs = ({rank.number: rank for rank in side.ranks} for side in (left, right))
    return [pair for rank in sorted({*ours, *theirs}) for pair in of_rank(ours.get(rank), theirs.get(rank))]


def of_rank(left: Rank | None, right: Rank | None) -> Iterator[Pair]:
    if left is None or right is None:
        number = (left or right or Rank(0)).number
        side = "the migrated script" if left is None else "the original"
        yield Pair("loss", "loss", number, 0, math.nan, math.nan, math.inf, why=f"only {side} has a rank {number}")
        return
    yield from of_losses(left, right)
    yield from of_arrays("gradient", left.gradients, right.gradients, left.number)
    yield from of_arrays("weight", left.weights, right.weights, left.number)


def of_losses(left: Rank, right: Rank) -> Iterator[Pair]:
    for step, (ours, theirs) in enumerate(zip_longest(left.losses, right.losses)):
        for place, (a, b) in enumerate(zip_longest(ours or [], theirs or [])):
            name = "loss" if place == 0 else f"loss {place + 1}"
            if a is None or b is None:
                why = f"only the {'migrated script' if a is None else 'original'} has it"
                yield Pair("loss", name, left.number, step, a or math.nan, b or math.nan, math.inf, why=why)
            else:
                yield Pair("loss", name, left.number, step, a, b, distance(np.asarray(a), np.asarray(b)))


def of_arrays(kind: Kind, left: Arrays, right: Arrays, rank: int) -> Iterator[Pair]:
    step = 0 if kind == "gradient" else None
    for name in [*left, *(name for name in right if name not in left)]:
        a, b = left.get(name), right.get(name)
        if a is None and OF_THE_ADAPTER.search(name):
            continue
        why = mismatch(a, b)
        if a is None or b is None or why:
            yield Pair(kind, name, rank, step, size(a), size(b), math.inf, why=why)
        else:
            yield Pair(kind, name, rank, step, size(a), size(b), distance(a, b), unit_of(a, b))


def mismatch(left: NDArray[Any] | None, right: NDArray[Any] | None) -> str:
    if right is None:
        return "only the original has it"
    if left is None:
        return "only the migrated script has it"
    if left.shape != right.shape:
        return f"its shape is {list(left.shape)} in the original, {list(right.shape)} after the migration"
    return ""


def distance(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the relative Euclidean distance to the original, infinity for anything that no rounding makes.

    That is: a whole number that differs, a value that is not finite on one side only, something beside zeros.
    """
    if np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
        return 0.0
    if left.dtype.kind not in "fc" or right.dtype.kind not in "fc":
        return math.inf
    try:
        found = compare_arrays(right, left)
    except Unmeasurable:
        return math.inf
    error = found.relative_euclidean
    return math.inf if found.mismatched or math.isnan(error) or not found.right.norm else error


def size(array: NDArray[Any] | None) -> float:
    if array is None or not array.size or array.dtype.kind not in "biuf":
        return math.nan
    return float(np.linalg.norm(array.astype(np.float64)))


def unit_of(left: NDArray[Any], right: NDArray[Any]) -> float:
    units = [float(np.finfo(one.dtype).eps) for one in (left, right) if one.dtype.kind == "f"]
    return max(units, default=0.0)


# ---- judging


def needs_a_yardstick(pairs: list[Pair]) -> bool:
    """Whether a shaken run would decide something: not where all is equal, nor where no rounding can be the reason."""
    if all(pair.same for pair in pairs) or any(pair.why for pair in pairs):
        return False
    return all(pair.error <= OBVIOUS for pair in pairs if pair.kind == "loss" and pair.step == 0)


def judge(pairs: list[Pair], yardstick: list[Pair] | None = None, repeats: bool = False) -> Agreement:
    """`repeats`: the original is known to repeat itself, so that the yardstick shows what it makes of rounding."""
    if not any(pair.kind == "loss" for pair in pairs):
        return Agreement("unsure", pairs, ["No loss was seen: nothing that trains could be compared step by step."])
    if all(pair.same for pair in pairs):
        return Agreement("same", pairs)
    if yardstick and not repeats and (remark := not_repeated(yardstick)):
        return Agreement("unsure", pairs, [remark])
    judged = allowed(pairs, yardstick or [])
    verdict: Verdict = "differ" if any(pair.bad for pair in judged) else "rounding"
    return Agreement(verdict, judged, list(untold(judged)))


def not_repeated(yardstick: list[Pair]) -> str:
    begin = [pair for pair in yardstick if pair.kind == "loss" and pair.step == 0]
    if any(pair.why for pair in yardstick) or any(pair.error > REPEATS for pair in begin):
        return (
            "The original does not repeat itself: a second run of it, with the same seed and weights moved by one unit "
            "in the last place, has another loss in its first step. Chance that no seed reaches (the clock, "
            "os.urandom, the order of threads) hides whatever the migration may have changed."
        )
    return ""


def allowed(pairs: list[Pair], yardstick: list[Pair]) -> list[Pair]:
    noise = {pair.key: pair.error for pair in yardstick if math.isfinite(pair.error)}
    usual = {kind: median([0.0, *(v for k, v in noise.items() if k[0] == kind)]) for kind in ("gradient", "weight")}
    rising = rising_noise(noise, usual["gradient"])
    found = []
    for pair in pairs:
        own = (
            rising.get(pair.step or 0, 0.0) if pair.kind == "loss" else max(noise.get(pair.key, 0.0), usual[pair.kind])
        )
        found.append(replace(pair, noise=own, allowed=FACTOR * own + UNITS * pair.unit if pair.unit else 0.0))
    return found


def rising_noise(noise: dict[tuple[Kind, str, int, int | None], float], begin: float) -> dict[int, float]:
    """Of losses by step: one value may agree by luck, so that the largest so far counts."""
    by_step: dict[int, float] = {}
    for (kind, _, _, step), error in noise.items():
        if kind == "loss" and step is not None:
            by_step[step] = max(by_step.get(step, begin), error)
    for before, after in pairwise(sorted(by_step)):
        by_step[after] = max(by_step[after], by_step[before])
    return by_step


def untold(pairs: list[Pair]) -> Iterator[str]:
    """What the script itself magnifies so much that nothing can be said about it."""
    losses = [pair.step for pair in pairs if pair.kind == "loss" and not pair.told and pair.step is not None]
    if losses:
        yield (
            f"From step {min(losses)} on the script magnifies one unit in the last place to more than "
            f"{TELLS / FACTOR:.1%} of the loss: losses are compared up to there."
        )
    for kind, when in (("gradient", "of the first step"), ("weight", "at the end")):
        hidden = [pair for pair in pairs if pair.kind == kind and not pair.told]
        if hidden:
            count = sum(pair.kind == kind for pair in pairs)
            some = "is" if len(hidden) == 1 else "are"
            tells = "tells" if len(hidden) == 1 else "tell"
            names = hidden[0].name + (" …" if len(hidden) > 1 else "")
            yield f"{len(hidden)} of {count} {kind}s {when} {some} mostly rounding, and {tells} nothing: {names}"
