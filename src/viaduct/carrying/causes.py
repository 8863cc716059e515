"""Causes of a difference: which step, which module, what was created with other numbers, which lines.

Nothing here decides whether two runs agree; it only says where to look when they do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from viaduct.carrying.agreement import Agreement, Pair
from viaduct.carrying.drift import find_first_call, kind_key
from viaduct.carrying.observed import Observed, Rank
from viaduct.comparison.drift import Drift
from viaduct.comparison.rows import Row
from viaduct.rehearsal.inspection import IDLE, LAST_RATE, RANKS, Fact

RATIO = 1e-3  # within which all gradients have one factor
ABSENT = "(not there)"
# Constants that TensorFlow writes into gradients: sizes and factors that follow from static shapes.
OF_GRADIENTS = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?:.*/)?[^/]*_grad(?:_\d+)?/")
HOW = {"foreach", "fused", "capturable", "workers", "last_epoch"}  # how something is computed, or how far it has come
At = tuple[str, int]


@dataclass(frozen=True)
class Other:
    """A value that is different on the other side."""

    kind: str
    name: str
    what: str
    left: Any
    right: Any
    left_at: At | None
    right_at: At | None

    @property
    def words(self) -> str:
        """Return the difference as a sentence."""
        left, right = format_value(self.left), format_value(self.right)
        return f"{self.name}: {self.what} is {left} in the original and {right} after the migration"


@dataclass
class Explanation:
    """`words`: what the lines that are to blame may speak of."""

    headline: str
    remarks: list[str] = field(default_factory=list)
    others: list[Other] = field(default_factory=list)
    module: str = ""  # the first whose output differs
    places: list[At] = field(default_factory=list)  # in the migrated script
    words: tuple[str, ...] = ()


def explain(agreement: Agreement, left: Observed, right: Observed, drift: Drift, to: str) -> Explanation:
    """Return what is known about the first divergence."""
    first = agreement.first
    if first is None:
        return Explanation("They agree.")
    found = Explanation(make_headline(first, to))
    others = find_other_facts(left.first.facts, right.first.facts)
    found.others = [other for other in others if other.kind != LAST_RATE]
    explain_steps(found, agreement, left, right)
    explain_calls(found, agreement, right, drift)
    for add_remarks in (explain_ranks, explain_gradients, explain_update):
        add_remarks(found, agreement, left, right)
    found.places += [fact.right_at for fact in found.others if fact.right_at]
    return found


def make_headline(first: Pair, to: str) -> str:
    """Return the first divergence in one sentence."""
    rank = f" of rank {first.rank}" if first.rank else ""
    if first.why:
        return f"They differ: {first.kind} {first.name!r}{rank}: {first.why}."
    if first.kind == "loss":
        return (
            f"They differ from step {first.step} on: the {first.name}{rank} is {first.left:.7g} in the original and "
            f"{first.right:.7g} on the {to.upper()} stand-in."
        )
    when = "in the first step, though its loss is the same" if first.kind == "gradient" else "at the end"
    return f"They differ {when}: the {first.kind} of {first.name}{rank} is off by {format_error(first.error)}."


def format_error(error: float) -> str:
    """Return a relative error as text."""
    return "everything" if not math.isfinite(error) else f"{error:.2%}" if error > 1e-4 else f"{error:.1e} of its size"


# ---- what was made with other numbers


def find_other_facts(left: list[Fact], right: list[Fact]) -> Iterator[Other]:
    """Yield facts that differ, in the original's order. Those of one side only are ignored."""
    theirs = {(fact.kind, fact.name): fact for fact in right}
    for fact in left:
        if fact.kind == RANKS:
            continue
        if fact.kind == "op" and fact.what.get("type") == "Const" and OF_GRADIENTS.search(fact.name):
            continue
        partner = theirs.get((fact.kind, fact.name))
        if partner is None or fact.what == partner.what or fact.what.get("type") != partner.what.get("type"):
            continue
        for name in [*fact.what, *(name for name in partner.what if name not in fact.what)]:
            a, b = fact.what.get(name, ABSENT), partner.what.get(name, ABSENT)
            if a != b and (fact.kind != "op" or is_number(a, b)):
                yield Other(fact.kind, fact.name, name, a, b, fact.at, partner.at)


def find_ineffective(left: Observed, right: Observed, unlike: set[At]) -> list[Other]:
    """Return numbers that differ although the runs agree.

    Of TensorFlow's operators only those of lines (`unlike`) that the rules would not write so: others follow from
    shapes, or have the name of another operator.
    """
    return [
        other
        for other in find_other_facts(left.first.facts, right.first.facts)
        if other.what not in HOW
        and is_number(other.left, other.right)
        and (other.kind != "op" or other.right_at in unlike)
    ]


def find_idle_optimizers(*sides: Observed) -> list[Fact]:
    """Return optimizers that took no step, on either side."""
    return list({fact.name: fact for side in sides for fact in side.first.facts if fact.kind == IDLE}.values())


def is_number(*values: Any) -> bool:
    """Return True if all values are numbers: types and shapes of operators follow from each other."""
    return all(isinstance(value, (bool, int, float, list)) or re.match(r"[fib]: ", str(value)) for value in values)


def format_value(value: Any) -> str:
    """Return a float32 as it was written: 0.9, not 0.8999999761581421."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


# ---- what the numbers themselves say


def explain_steps(found: Explanation, agreement: Agreement, left: Observed, right: Observed) -> None:
    """Note different numbers of steps."""
    counts = len(left.first.losses), len(right.first.losses)
    if counts[0] != counts[1]:
        found.remarks.append(f"The original took {counts[0]} steps, the migrated script {counts[1]}.")
        found.words += ("step", "epoch", "batch", "drop_remainder", "drop_last", "//", "size")


def explain_calls(found: Explanation, agreement: Agreement, right: Observed, drift: Drift) -> None:
    """Name the first module, in the order of the calls, whose output differs; or what the network was given."""
    row = find_first_call(drift)
    if row is not None:
        where = f" of rank {row.stored.rank}" if row.stored.rank else ""
        if row.stored.role == "input":
            found.remarks.append(f"The first batch{where} differs already: the data, its order or its share.")
            found.words += ("batch", "shuffle", "shard", "sampler", "Dataset", "Loader", "seed", "normal")
            return
        found.module = row.op
        found.remarks.append(f"The first module{where} whose output differs is {row.op}{likely_cause(drift, row)}.")
        rank = next((candidate for candidate in right.ranks if candidate.number == row.stored.rank), right.first)
        found.places += [fact.at for fact in rank.facts if (fact.kind, fact.name) == ("module", row.op) and fact.at]
        return
    first = agreement.first
    has_calls = any(kind_key(row.stored) is None for row in drift.rows)
    if has_calls and first is not None and first.kind == "loss" and first.step == 0:
        found.remarks.append("Every module gives the same in the first step; the loss is computed differently.")
        found.places += [fact.at for fact in right.first.facts if fact.kind == "loss" and fact.at]
        found.words += ("loss", "smoothing", "weight", "reduction", "criterion")


def likely_cause(drift: Drift, row: Row) -> str:
    """Return what the numbers of a module look like, if the comparison has a cause for it."""
    origin, causes = drift.explanation.origin, drift.explanation.causes
    if origin is None or origin.op != row.op or not causes:
        return ""
    return f" (likely {causes[0].name}: {causes[0].evidence.rstrip('.')})"


def explain_ranks(found: Explanation, agreement: Agreement, left: Observed, right: Observed) -> None:
    """Note ranks that start differently or do not average their gradients."""
    if len(left.ranks) < 2 or len(right.ranks) != len(left.ranks):
        return
    begin = {pair.rank for pair in agreement.bad if pair.kind == "loss" and pair.step == 0}
    if begin and 0 not in begin:
        found.remarks.append(
            "Rank 0 begins as it should, the others do not: its weights are not broadcast, or they get other data."
        )
        found.words += ("broadcast", "Broadcast", "DistributedDataParallel", "shard")
    if have_equal_gradients(left.ranks) and not have_equal_gradients(right.ranks):
        found.remarks.append(
            "In the original all ranks apply the same gradients; after the migration each applies its own: they are "
            "not averaged over the ranks."
        )
        found.words += ("DistributedOptimizer", "allreduce", "all_reduce", "DistributedDataParallel", "DDP")


def have_equal_gradients(ranks: list[Rank]) -> bool:
    """Return True if all ranks have the same gradients."""
    first = ranks[0].gradients
    return all(
        np.allclose(rank.gradients.get(name, math.nan), array, rtol=1e-4, atol=0)
        for rank in ranks[1:]
        for name, array in first.items()
    )


def explain_gradients(found: Explanation, agreement: Agreement, left: Observed, right: Observed) -> None:
    """Note a common factor of all gradients."""
    first = agreement.first
    if first is None or first.kind != "gradient":
        return
    ratio = common_ratio(left.first, right.first)
    if ratio is None or abs(ratio - 1) <= RATIO:  # one factor, and it is none
        return
    found.remarks.append(f"All gradients are {ratio:.6g} times those of the original.")
    found.words += ("scale", "unscale", "average", "size", "mean", "sum", "allreduce")


def common_ratio(left: Rank, right: Rank) -> float | None:
    """Return the common factor of all gradients; None if there is none."""
    ratios = []
    for name, ours in left.gradients.items():
        theirs = right.gradients.get(name)
        energy = float(np.vdot(ours, ours).real) if ours.dtype.kind == "f" else 0.0
        if theirs is None or theirs.shape != ours.shape:
            return None
        if energy > 0:
            ratio = float(np.vdot(ours, theirs).real) / energy
            if not np.linalg.norm(theirs - ratio * ours) <= RATIO * np.linalg.norm(theirs):
                return None
            ratios.append(ratio)
    if not ratios or not math.isfinite(ratios[0]) or max(ratios) - min(ratios) > RATIO * abs(ratios[0]):
        return None
    return float(np.median(ratios))


def explain_update(found: Explanation, agreement: Agreement, left: Observed, right: Observed) -> None:
    """Note that loss and gradients of the first step agree, so that the update or later data differ."""
    first = agreement.first
    if first is None or first.why or first.kind == "gradient" or (first.kind == "loss" and first.step == 0):
        return
    rates = zip(left.first.rates, right.first.rates, strict=False)
    step = next((step for step, (a, b) in enumerate(rates) if a != b), None)
    if step is not None:
        ours, theirs = left.first.rates[step], right.first.rates[step]
        found.remarks.append(
            f"The learning rate differs from step {step} on: {join_rates(ours)} and {join_rates(theirs)}."
        )
    found.remarks.append(
        "The first step's loss and gradients are the same: what the optimizer makes of them, or the data of later "
        "steps, is not."
    )
    found.words += (
        "lr",
        "learning_rate",
        "momentum",
        "decay",
        "Optimizer",
        "optim",
        "schedule",
        "clip",
        "step",
        "beta",
    )


def join_rates(values: list[float]) -> str:
    """Return learning rates as text."""
    return ", ".join(f"{value:.6g}" for value in values)
