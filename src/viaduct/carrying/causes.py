"""Where a difference begins, and which objects of the script were created with other settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.carrying.agreement import Agreement, ValueKind, ValuePair
from viaduct.carrying.drift import find_first_differing_call, make_agreement_key
from viaduct.carrying.observations import Observations, Rank
from viaduct.comparison.drift import Drift
from viaduct.comparison.records import Row
from viaduct.rehearsal.inspection import IDLE_OPTIMIZER_KIND, LAST_LEARNING_RATE_KIND, RANKS_KIND, Fact

RATIO_TOLERANCE = 1e-3  # relative spread up to which gradients have one common factor
ABSENT = "(not there)"  # value of a setting that only the other side has
# Name of a constant in a TensorFlow graph's gradients: a size or factor that follows from static shapes.
GRADIENT_CONSTANT = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?:.*/)?[^/]*_grad(?:_\d+)?/")
# The first three change results by rounding at most. `workers` may change the random numbers that a dataset draws; the
# inputs of networks, which are compared, show that. `last_epoch` is the number of steps that a schedule has taken.
HARMLESS_SETTINGS = {"foreach", "fused", "capturable", "workers", "last_epoch"}
Location = tuple[str, int]  # file and line


@dataclass(frozen=True)
class ChangedSetting:
    """A setting of an object that has another value on the migrated side."""

    kind: str  # of the object: module, optimizer, op … (rehearsal/inspection.py: Fact)
    name: str  # of the object
    what: str  # name of the setting
    left: Any
    right: Any
    left_at: Location | None  # where the object was created
    right_at: Location | None

    @property
    def sentence(self) -> str:
        left, right = format_value(self.left), format_value(self.right)
        return f"{self.name}: {self.what} is {left} in the original and {right} after the migration"


@dataclass
class Explanation:
    """What is known about the first divergence."""

    headline: str
    remarks: list[str] = field(default_factory=list)
    changed_settings: list[ChangedSetting] = field(default_factory=list)
    module: str = ""  # the first module whose output differs or could not be compared
    suspected_lines: list[Location] = field(default_factory=list)  # migrated lines that created suspected objects
    keywords: tuple[str, ...] = ()  # a changed line with one of them is more suspect (suspects.py)


def explain(agreement: Agreement, left: Observations, right: Observations, drift: Drift, to: str) -> Explanation:
    """Explain the first divergence. Objects are compared for the first observed rank.

    `left` is the original, `right` the migrated run; in `drift` it is the other way round. `to`: the card's name.
    """
    first = agreement.first_bad
    if first is None:
        return Explanation("They agree.")
    explanation = Explanation(make_headline(agreement, first, to))
    settings = find_changed_settings(left.first_rank.facts, right.first_rank.facts)
    # The last learning rate is only a consequence of other settings.
    explanation.changed_settings = [setting for setting in settings if setting.kind != LAST_LEARNING_RATE_KIND]
    explain_steps(explanation, left, right)
    explain_calls(explanation, first, right, drift)
    explain_ranks(explanation, agreement, left, right)
    explain_gradients(explanation, first, left, right)
    explain_update(explanation, agreement, left, right)
    explanation.suspected_lines += [setting.right_at for setting in explanation.changed_settings if setting.right_at]
    return explanation


def make_headline(agreement: Agreement, first: ValuePair, to: str) -> str:
    """Return the first divergence in one sentence."""
    rank = f" of rank {first.rank}" if first.rank else ""
    if first.why:
        return f"They differ: {first.kind} {first.name!r}{rank}: {first.why}."
    if first.kind == "loss":
        return (
            f"They differ from step {first.step} on: the {first.name}{rank} is {first.left:.7g} in the original and "
            f"{first.right:.7g} on the {to.upper()} stand-in."
        )
    moment = "at the end"
    if first.kind == "gradient":
        moment = f"in the first step{', though its loss agrees' if has_compared_first_step(agreement, 'loss') else ''}"
    return f"They differ {moment}: the {first.kind} of {first.name}{rank} is off {format_error(first.error)}."


def has_compared_first_step(agreement: Agreement, kind: ValueKind) -> bool:
    """Return True if values of this kind were compared in the first step."""
    return any(pair.step == 0 for pair in agreement.informative_pairs(kind))


def format_error(error: float) -> str:
    if not math.isfinite(error):
        return "without a relative measure (from zero, not finite, or whole numbers)"
    return f"by {error:.2%}" if error > 1e-4 else f"by {error:.1e} of its size"


# ---- objects that were created with other numbers


def find_changed_settings(left: list[Fact], right: list[Fact]) -> Iterator[ChangedSetting]:
    """Yield the settings that differ in objects which both sides have with the same kind, name and type.

    The fact whether ranks train together is left out. So are, of TensorFlow's operators (kind "op"), constants of
    gradients and settings that are not numbers.
    """
    theirs = {(fact.kind, fact.name): fact for fact in right}
    for fact in left:
        if fact.kind == RANKS_KIND:
            continue
        if fact.kind == "op" and fact.settings.get("type") == "Const" and GRADIENT_CONSTANT.search(fact.name):
            continue
        partner = theirs.get((fact.kind, fact.name))
        if (
            partner is None
            or fact.settings == partner.settings
            or fact.settings.get("type") != partner.settings.get("type")
        ):
            continue
        for name in [*fact.settings, *(name for name in partner.settings if name not in fact.settings)]:
            a, b = fact.settings.get(name, ABSENT), partner.settings.get(name, ABSENT)
            if a != b and (fact.kind != "op" or is_number(a, b)):
                yield ChangedSetting(fact.kind, fact.name, name, a, b, fact.line, partner.line)


def find_ineffective_settings(
    left: Observations, right: Observations, deviating: set[Location]
) -> list[ChangedSetting]:
    """Return the numbers with which objects of the first rank were created differently, although the runs agree.

    A TensorFlow operator counts only if the rules would write its line differently (`deviating`). Otherwise the number
    follows from shapes, or belongs to another operator of the same name.
    """
    return [
        setting
        for setting in find_changed_settings(left.first_rank.facts, right.first_rank.facts)
        if setting.what not in HARMLESS_SETTINGS
        and is_number(setting.left, setting.right)
        and (setting.kind != "op" or setting.right_at in deviating)
    ]


def find_idle_optimizers(*sides: Observations) -> list[Fact]:
    """Return the optimizers that took no step on at least one side, by name."""
    facts = (fact for side in sides for fact in side.first_rank.facts)
    return list({fact.name: fact for fact in facts if fact.kind == IDLE_OPTIMIZER_KIND}.values())


def is_number(*values: Any) -> bool:
    """Return True if each value is a number, a list, or the text of a TensorFlow attribute with a number (`f: 0.9`)."""
    return all(isinstance(value, (bool, int, float, list)) or re.match(r"[fib]: ", str(value)) for value in values)


def format_value(value: Any) -> str:
    """Return a value as text; a float with seven digits: 0.9 for 0.8999999761581421."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


# ---- remarks on the numbers


def explain_steps(explanation: Explanation, left: Observations, right: Observations) -> None:
    counts = len(left.first_rank.losses), len(right.first_rank.losses)
    if counts[0] != counts[1]:
        explanation.remarks.append(f"The original took {counts[0]} steps, the migrated script {counts[1]}.")
        explanation.keywords += ("step", "epoch", "batch", "drop_remainder", "drop_last", "//", "size")


def explain_calls(explanation: Explanation, first: ValuePair, right: Observations, drift: Drift) -> None:
    """Name the first module with another output, or the network's input if that differs; else suspect the loss.

    Only samples of the networks' inputs and of the modules' outputs in the first step were recorded.
    """
    row = find_first_differing_call(drift)
    if row is not None:
        of_rank = f" of rank {row.tensor.rank}" if row.tensor.rank else ""
        if row.tensor.role == "input" and not row.is_compared:
            explanation.remarks.append(f"An input{of_rank} of {row.op} could not be compared: {row.reason}.")
            return
        if row.tensor.role == "input":
            explanation.remarks.append(f"The first batch{of_rank} already differs: the data, its order or its share.")
            explanation.keywords += ("batch", "shuffle", "shard", "sampler", "Dataset", "Loader", "seed", "normal")
            return
        explanation.module = row.op
        first_module = f"The first module{of_rank} whose output"
        if not row.is_compared:
            explanation.remarks.append(f"{first_module} could not be compared is {row.op}: {row.reason}.")
        else:
            explanation.remarks.append(f"{first_module} differs is {row.op}{describe_likely_cause(drift, row)}.")
        rank = next((candidate for candidate in right.ranks if candidate.number == row.tensor.rank), right.first_rank)
        modules = (fact for fact in rank.facts if fact.kind == "module" and fact.name == row.op)
        explanation.suspected_lines += [fact.line for fact in modules if fact.line]
        return
    # Rows without a key are inputs and outputs of modules; the others are losses, gradients and weights.
    has_calls = any(make_agreement_key(row.tensor) is None for row in drift.rows)
    if has_calls and first.kind == "loss" and first.step == 0:
        agreeing = "The recorded samples of module outputs agree in the first step"
        explanation.remarks.append(f"{agreeing}, so the loss is probably computed differently.")
        losses = (fact for fact in right.first_rank.facts if fact.kind == "loss")
        explanation.suspected_lines += [fact.line for fact in losses if fact.line]
        explanation.keywords += ("loss", "smoothing", "weight", "reduction", "criterion")


def describe_likely_cause(drift: Drift, row: Row) -> str:
    """Return the likeliest cause in brackets, if the comparison found one for this module; else empty."""
    origin, causes = drift.explanation.origin, drift.explanation.causes
    if origin is None or origin.op != row.op or not causes:
        return ""
    return f" (likely {causes[0].name}: {causes[0].evidence.rstrip('.')})"


def explain_ranks(explanation: Explanation, agreement: Agreement, left: Observations, right: Observations) -> None:
    """Note it if only ranks after rank 0 begin differently, or if only the original's ranks have equal gradients."""
    if len(left.ranks) < 2 or len(right.ranks) != len(left.ranks):
        return
    first_losses = [pair for pair in agreement.informative_pairs("loss") if pair.step == 0]
    differing_ranks = {pair.rank for pair in first_losses if pair.bad}
    if differing_ranks and 0 in {pair.rank for pair in first_losses} - differing_ranks:
        why = "perhaps weights are not broadcast, or these ranks get other data"
        others = ", ".join(map(str, sorted(differing_ranks)))
        explanation.remarks.append(f"Rank 0 begins as in the original, but not rank {others}: {why}.")
        explanation.keywords += ("broadcast", "Broadcast", "DistributedDataParallel", "shard")
    if have_equal_gradients(left.ranks) is True and have_equal_gradients(right.ranks) is False:
        explanation.remarks.append(
            "In the first step all ranks of the original have the same gradients; after the migration they have "
            "different ones: probably the gradients are not averaged over the ranks."
        )
        explanation.keywords += ("DistributedOptimizer", "allreduce", "all_reduce", "DistributedDataParallel", "DDP")


def have_equal_gradients(ranks: list[Rank]) -> bool | None:
    """Return True if all ranks have rank 0's gradients up to 1e-4 (relative); None if rank 0 recorded none."""
    pairs = [(rank.gradients.get(name), first) for rank in ranks[1:] for name, first in ranks[0].gradients.items()]
    return all(is_close_array(other, first) for other, first in pairs) if pairs else None


def is_close_array(array: NDArray[Any] | None, other: NDArray[Any]) -> bool:
    return array is not None and array.shape == other.shape and np.allclose(array, other, rtol=1e-4, atol=0)


def explain_gradients(explanation: Explanation, first: ValuePair, left: Observations, right: Observations) -> None:
    """Note a common factor of the first rank's gradients, if gradients are the first difference."""
    ratio = find_common_ratio(left.first_rank, right.first_rank) if first.kind == "gradient" else None
    if ratio is None or abs(ratio - 1) <= RATIO_TOLERANCE:  # a factor of 1 explains nothing
        return
    number = left.first_rank.number
    explanation.remarks.append(f"The gradients of rank {number} are {ratio:.6g} times those of the original.")
    explanation.keywords += ("scale", "unscale", "average", "size", "mean", "sum", "allreduce")


def find_common_ratio(left: Rank, right: Rank) -> float | None:
    """Return the factor by which the right side's gradients are larger, if it is the same for all; else None.

    Gradients that are zero on the left side are left out.
    """
    ratios = []
    for name, ours in left.gradients.items():
        theirs = right.gradients.get(name)
        squared_norm = float(np.vdot(ours, ours).real) if ours.dtype.kind == "f" else 0.0
        if theirs is None or theirs.shape != ours.shape:
            return None
        if squared_norm > 0:
            ratio = float(np.vdot(ours, theirs).real) / squared_norm  # the least-squares factor
            if not np.linalg.norm(theirs - ratio * ours) <= RATIO_TOLERANCE * np.linalg.norm(theirs):
                return None
            ratios.append(ratio)
    if not ratios or not math.isfinite(ratios[0]) or max(ratios) - min(ratios) > RATIO_TOLERANCE * abs(ratios[0]):
        return None
    return float(np.median(ratios))


def explain_update(explanation: Explanation, agreement: Agreement, left: Observations, right: Observations) -> None:
    """If loss and gradients of the first step agree, note this, and the step from which the learning rate differs."""
    first = agreement.first_bad
    if first is None or first.why or first.kind == "gradient" or (first.kind == "loss" and first.step == 0):
        return
    rates = zip(left.first_rank.learning_rates, right.first_rank.learning_rates, strict=False)
    step = next((step for step, (a, b) in enumerate(rates) if a != b), None)
    if step is not None:
        ours, theirs = left.first_rank.learning_rates[step], right.first_rank.learning_rates[step]
        both = " and ".join(", ".join(f"{rate:.6g}" for rate in rates) for rates in (ours, theirs))
        explanation.remarks.append(f"The learning rate differs first in step {step}: {both}.")
    if has_compared_first_step(agreement, "loss"):
        agreeing = "loss and gradients agree" if has_compared_first_step(agreement, "gradient") else "loss agrees"
        explanation.remarks.append(
            f"The first step's {agreeing}, so probably the optimizer's update or the data of later steps differ."
        )
    explanation.keywords += ("lr", "learning_rate", "momentum", "decay", "Optimizer", "optim", "schedule")
    explanation.keywords += ("clip", "step", "beta")
