"""The first divergence: the first operator that is bad while all its inputs are good.

The steps are searched in order, and in each step the parameters, the forward pass, the backward pass and the updates. A
module whose inner modules are all good while its output is bad is itself the origin: its own code is wrong. A small
error may grow before it crosses a threshold: if a call before the first bad one turns inputs that agree up to rounding
into an output that is off by far more than rounding, that call is the origin. Everything else that is bad in the
origin's step or later is marked as following from it. Rounding that grows from layer to layer until it crosses a
threshold has no origin. If the dump shows no inputs, the first bad tensor in execution order is the origin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viaduct.comparison.calls import BACKWARD, FORWARD, ROOT, Call, Moment, contains_module, error_of, group_moments
from viaduct.comparison.grids import BFLOAT16, FLOAT16, FLOAT32
from viaduct.comparison.rows import Origin, OriginKind, Row
from viaduct.comparison.tensors import Role, Stored

JUMP = 6.0  # an error this many times its inputs' is the operator's own
ROUNDINGS = 4  # inputs with an error of at most this many roundings count as exact
CANCELLED = 10.0  # the terms of a weight's gradient mostly cancel: errors grow by this factor without a fault
QUIET = 200  # roundings; sums in another order differ by less, given equal inputs
MOST_FURTHER = 20
FEW_WRONG, MOST_WRONG = 4, 0.2  # number and share of weights; if more differ in a later step, training drifted apart
EPSILONS = {"bfloat16": BFLOAT16.epsilon, "float16": FLOAT16.epsilon}


@dataclass(frozen=True)
class Judgement:
    """The rows with what they follow from, and the origins: the first is the answer."""

    rows: tuple[Row, ...]
    origins: tuple[Origin, ...] = ()
    growth: tuple[float, float] | None = None  # smallest and largest error, where rounding only accumulates
    weight_drift: WeightDrift | None = None  # where training itself has carried the weights apart


@dataclass(frozen=True)
class WeightDrift:
    """Weights that were equal in one dumped step and mostly differ in a later one."""

    before: int
    after: int
    weights: int
    of: int


def judge(rows: Sequence[Row], feeders: Mapping[str, tuple[str, ...]]) -> Judgement:
    """Find the origins, and mark what follows from them; `feeders`: operator -> those it reads from."""
    if not any(row.result == "bad" for row in rows):
        return Judgement(tuple(rows))
    gradual = False
    apart: WeightDrift | None = None
    equal: dict[int, int] = {}  # of each rank, the last step that began with equal weights
    first = min(row.stored.step for row in rows if row.result == "bad")
    for moment in group_moments(rows, feeders):
        if moment.step > first:
            break  # that step had no origin of its own; what is bad later follows from it
        if moment.rank in equal and (parted := find_weight_drift(moment, equal[moment.rank])):
            gradual, apart = True, apart or parted
            continue
        if moment.parameters and not find_wrong_parameters(moment):
            equal[moment.rank] = moment.step
        found = find_candidates(moment)
        sudden = [made for made in found if made.jump]
        gradual = gradual or bool(found)
        if sudden:
            # Behind the first origin nothing is exact any more: what has exact inputs all the same is on its own.
            origins = [sudden[0].origin, *(made.origin for made in sudden[1:] if made.clean)][: 1 + MOST_FURTHER]
            return Judgement(mark_followers(rows, origins), tuple(origins))
    if gradual:
        until = [row for row in rows if row.stored.step <= first]
        errors = [error_of(row) for row in until if row.stored.role == "output"] or [error_of(row) for row in until]
        seen = [error for error in errors if 0 < error < math.inf] or [0.0]
        return Judgement(tuple(rows), growth=(min(seen), max(seen)), weight_drift=apart)
    origin = find_first_bad(rows)
    return Judgement(mark_followers(rows, [origin]), (origin,))


def find_weight_drift(moment: Moment, before: int) -> WeightDrift | None:
    """Return the drift if most weights differ; a single one that differs is a fault of its own."""
    bad = sum(is_bad(moment, index) for index in moment.parameters)
    if bad <= max(FEW_WRONG, MOST_WRONG * len(moment.parameters)):
        return None
    return WeightDrift(before, moment.step, bad, len(moment.parameters))


@dataclass(frozen=True)
class Candidate:
    """A possible origin with the error of its inputs and its own."""

    origin: Origin
    coming: float  # the largest error of its inputs
    made: float  # the largest error of its bad tensors
    rounding: float  # relative error of one rounding in its format
    order: float

    @property
    def clean(self) -> bool:
        """Return True if its inputs are equal up to a few roundings."""
        return self.coming <= ROUNDINGS * self.rounding

    @property
    def jump(self) -> bool:
        """Return True if its error is its own, and not a growth of its inputs' error."""
        return self.made >= JUMP * self.coming


def find_candidates(moment: Moment) -> list[Candidate]:
    """Return the candidates of the first phase of one step that has any, in execution order."""
    for phase in (find_wrong_parameters, find_wrong_outputs, find_wrong_gradients, find_wrong_updates):
        found = sorted(phase(moment), key=lambda candidate: candidate.order)
        if found and phase is not find_wrong_parameters:
            before = found[0].order if phase is find_wrong_outputs else math.inf
            return [*find_hidden_origin(moment, before), *found]
        if found:
            return found
    return []


def find_hidden_origin(moment: Moment, before: float) -> list[Candidate]:
    """Return the first call that turns equal inputs into an output far beyond rounding, within thresholds."""
    for call in moment.calls:
        outputs, inputs = call.row_indices.get("output", []), given_inputs(moment, call)
        parts = [index for part in moment.calls_within(call) for index in part.row_indices.get("output", ())]
        if call.order >= before or not outputs or not inputs:
            continue
        coming, made = moment.largest_error([*inputs, *parts]), moment.largest_error(outputs)
        limit = rounding(moment.rows[outputs[0]])
        if coming <= ROUNDINGS * limit and made >= QUIET * limit and not moment.bad_rows(call, "output"):
            why = (
                f"its output differs by {made:.2g} of the golden size: within the thresholds, but far beyond rounding, "
                f"while its inputs agree up to rounding (largest difference {coming:.2g}); what is bad grows from it"
            )
            return [make_candidate(moment, outputs, "operator", why, coming=coming, order=call.order)]
    return []


def find_wrong_parameters(moment: Moment) -> list[Candidate]:
    """Return parameters that differ before the step."""
    why = "it differs before anything was computed in this step"
    return [make_candidate(moment, [index], "parameter", why) for index in moment.parameters if is_bad(moment, index)]


def find_wrong_updates(moment: Moment) -> list[Candidate]:
    """Return updates that differ."""
    return [
        make_candidate(moment, [index], "parameter", explain_update(moment, moment.rows[index].stored))
        for index in moment.updates
        if is_bad(moment, index)
    ]


def explain_update(moment: Moment, update: Stored) -> str:
    """Describe the gradient that an update was computed from."""
    made_of = [
        moment.rows[index]
        for call in moment.by_op.get(update.op, ())
        for index in call.row_indices.get("gradient", ())
        if moment.rows[index].stored.index == update.index
    ]
    if not made_of:
        return "its update differs, while the weight itself agrees; its gradient was not dumped"
    for row in made_of:
        for side, stored in (("left", row.pair.left), ("right", row.pair.right)):
            if stored is None:
                return f"its update differs: it has no gradient on the {side}, while the weight itself agrees"
        if row.measures is None:
            return f"its update differs, while the weight itself agrees; its gradient was not compared: {row.reason}"
    return "its update differs, while its gradient and the weight itself agree"


def is_bad(moment: Moment, index: int) -> bool:
    """Return True if a row is bad."""
    return moment.rows[index].result == "bad"


def make_candidate(
    moment: Moment,
    row_indices: Sequence[int],
    kind: OriginKind,
    why: str,
    *,
    op: str = "",
    coming: float = 0.0,
    order: float | None = None,
) -> Candidate:
    """Return the candidate for some bad rows."""
    row = moment.rows[row_indices[0]]
    origin = Origin(op or row.op, kind, moment.step, moment.rank, row_indices[0], why)
    return Candidate(
        origin, coming, moment.largest_error(row_indices), rounding(row), row.stored.order if order is None else order
    )


def find_wrong_outputs(moment: Moment) -> list[Candidate]:
    """Return calls with a bad output from good inputs, and the first bad input."""
    found = [made for call in moment.calls if (made := check_output(moment, call)) is not None]
    first = find_wrong_input(moment, min((made.order for made in found), default=math.inf))
    return [*found, *([first] if first else [])]


def check_output(moment: Moment, call: Call) -> Candidate | None:
    """Return a call with a bad output although its inputs and all its parts are good."""
    bad = moment.bad_rows(call, "output")
    if not bad or moment.bad_rows(call, "input"):
        return None
    parts = moment.calls_within(call)
    if any(moment.bad_rows(part, "input", "output") for part in parts):
        return None
    feeding = moment.feeding_calls(call)
    inputs = call.row_indices.get("input", [])
    if not inputs and any(moment.bad_rows(other, "output") for other in feeding):
        return None
    if not inputs and not feeding and has_earlier_mismatch(moment, call):
        return None
    known = given_inputs(moment, call)
    coming = moment.largest_error([*known, *(index for part in parts for index in part.row_indices.get("output", ()))])
    order = max([call.order, *(part.order for part in parts)]) + (0.5 if parts else 0.0)
    why = describe_output(moment, bad[0], known, bool(parts))
    return make_candidate(moment, bad, "operator", why, coming=coming, order=order)


def given_inputs(moment: Moment, call: Call) -> list[int]:
    """Return the rows of its dumped inputs; else those of the outputs that feed it."""
    return call.row_indices.get("input") or output_rows(moment.feeding_calls(call))


def has_earlier_mismatch(moment: Moment, call: Call) -> bool:
    """Return True if anything before a call is bad; used where there are no inputs or edges."""
    return any(other.order < call.order and moment.bad_rows(other, "input", "output") for other in moment.calls)


def describe_output(moment: Moment, index: int, known: Sequence[int], parts: bool) -> str:
    """Describe the error of an output beside its inputs'."""
    said = f"its {moment.rows[index].stored.role} differs by {error_of(moment.rows[index]):.2g} of the golden size"
    if not known:
        return f"{said}; it is the first in execution order"
    inside = " and all modules within it" if parts else ""
    return f"{said}, while its inputs{inside} agree (largest difference {moment.largest_error(known):.2g})"


def rounding(row: Row) -> float:
    """Return one rounding in the coarser of the two formats."""
    dtypes = [stored.dtype for stored in (row.pair.left, row.pair.right) if stored is not None]
    return max(EPSILONS.get(dtype, FLOAT32.epsilon) for dtype in dtypes)


def find_wrong_input(moment: Moment, before: float) -> Candidate | None:
    """Return the first input that is bad although all outputs before it are good."""
    for call in moment.calls:
        bad = moment.bad_rows(call, "input")
        if call.order > before or (moment.bad_rows(call, "output") and not bad):
            return None
        if bad:
            return explain_input(moment, call, bad)
    return None


def explain_input(moment: Moment, call: Call, bad: Sequence[int]) -> Candidate:
    """Return where a bad input comes from: what feeds it, the module around it, or the network's input."""
    feeding = sorted(moment.feeding_calls(call), key=lambda other: other.order)
    unseen = [other for other in feeding if not has_measured_outputs(moment, other)]
    around = [other for other in moment.calls if contains_module(other.op, call.op)]
    healthy = [other for other in around if other.row_indices.get("input") and not moment.bad_rows(other, "input")]
    differs = f"the input of {call.op} differs by {moment.largest_error(bad):.2g} of the golden size"
    if is_after_network(moment, call):
        return explain_loss_input(moment, call, bad, differs)
    if unseen and not moment.bad_rows(unseen[-1], "input"):
        op, why = unseen[-1].op, f"{differs}; it comes from {unseen[-1].op}, whose own output could not be compared"
    elif healthy:
        op = max(healthy, key=lambda other: len(other.op) if other.op != ROOT else 0).op
        why = (
            f"{differs}, though {op} was given good inputs and no module before {call.op} is bad: it happens in {op}'s"
        )
        why += f" own code, just before {call.op}"
    elif feeding:
        op, why = call.op, f"{differs}, though all that feeds it agrees: something between them is different"
    else:
        return explain_network_input(moment, call, around, bad)
    coming = moment.largest_error(output_rows(feeding)) if output_rows(feeding) else error_before(moment, call)
    return make_candidate(moment, bad, "operator", why, op=op, coming=coming, order=call.order - 0.5)


def explain_network_input(moment: Moment, call: Call, around: Sequence[Call], bad: Sequence[int]) -> Candidate:
    """Return the candidate for a bad network input, reported at the outermost module that has it."""
    outermost = min([*around, call], key=lambda other: len(other.op) if other.op != ROOT else 0)
    row_indices = moment.bad_rows(outermost, "input") or bad
    why = "what enters the network differs already: look at the input pipeline"
    return make_candidate(moment, row_indices, "input", why, order=call.order - 0.5)


def is_after_network(moment: Moment, call: Call) -> bool:
    """Return True if the network had ended before this call, as for a loss. Dumps number a module when it ends."""
    ended = [root for root in moment.by_op.get(ROOT, ()) if root.order < call.order]
    return any(part.order < root.order for root in ended for part in moment.calls_within(root)) and "." not in call.op


def explain_loss_input(moment: Moment, call: Call, bad: Sequence[int], differs: str) -> Candidate:
    """Return the candidate for labels, or for what the loop computes from the output."""
    number = moment.rows[bad[0]].stored.index
    why = f"{differs} (number {number} of what enters it), though all that the network computed agrees: look at the "
    why += "input pipeline and the training loop"
    return make_candidate(moment, bad, "input", why, order=call.order - 0.5)


def has_measured_outputs(moment: Moment, call: Call) -> bool:
    """Return True if an output of the call was measured."""
    return any(moment.rows[index].measures is not None for index in call.row_indices.get("output", ()))


def output_rows(feeding: Sequence[Call]) -> list[int]:
    """Return the rows of the outputs of some calls."""
    return [index for other in feeding for index in other.row_indices.get("output", ())]


def error_before(moment: Moment, call: Call) -> float:
    """Return the error of the last outputs before a call."""
    before = [other for other in moment.calls if other.order < call.order and other.row_indices.get("output")]
    return moment.largest_error(before[-1].row_indices["output"]) if before else 0.0


def find_wrong_gradients(moment: Moment) -> list[Candidate]:
    """Return the first bad gradient, the forward pass being good."""
    calls = sort_backward(moment, [call for call in moment.calls if any(map(call.row_indices.get, BACKWARD))])
    ops = {call.op for call in calls if moment.bad_rows(call, *BACKWARD)}
    bad = [call for call in calls if call.op in ops and not any(part.op in ops for part in moment.calls_within(call))]
    if not bad:
        return []
    first = next((call for call in bad if moment.bad_rows(call, *BACKWARD)), bad[0])
    before = [call for call in calls[: calls.index(first)] if not contains_module(call.op, first.op)]
    if moment.bad_rows(first, "grad_output") or not first.row_indices.get("grad_output"):
        return [explain_arriving_gradient(moment, first, before)]
    made = moment.bad_rows(first, "grad_input", "gradient")
    differs = f"the gradient it hands on differs by {moment.largest_error(made):.2g}"
    why = f"{differs}, while the one it was given and the forward pass agree"
    coming = max(moment.largest_error(first.row_indices.get("grad_output", ())), relu_error(moment, [first]))
    if not moment.bad_rows(first, "grad_input"):
        coming *= CANCELLED
    return [make_candidate(moment, made, "operator", why, coming=coming)]


def explain_arriving_gradient(moment: Moment, first: Call, before: Sequence[Call]) -> Candidate:
    """Return the candidate for a gradient that is bad on arrival: from the loss, or between operators."""
    bad = moment.bad_rows(first, "grad_output") or moment.bad_rows(first, *BACKWARD)
    differs = f"the gradient at {first.op} differs by {moment.largest_error(bad):.2g}, while the forward pass agrees"
    if not before:
        return make_candidate(moment, bad, "input", f"{differs}, and it is the first of all gradients: labels or loss")
    handing = [call for call in before if first.op in moment.feeders.get(call.op, ())] or before[-1:]
    coming = moment.largest_error(index for call in handing for index in call.row_indices.get("grad_input", ()))
    why = f"{differs}, and so do the gradients before it (largest difference {coming:.2g})"
    return make_candidate(moment, bad, "operator", why, coming=max(coming, relu_error(moment, [first, *handing])))


def relu_error(moment: Moment, calls: Sequence[Call]) -> float:
    """Estimate the gradient error that a ReLU makes of a small difference in its input.

    Of normal values about a share e lies within e of the kink: there the gradient is passed on by one side and not by
    the other, so that its relative error is the root of that share. Seen on a GPU: 8e-5 forward, 5.5e-3 backward.
    """
    return math.sqrt(
        moment.largest_error(index for call in calls for role in FORWARD for index in call.row_indices.get(role, ()))
    )


def sort_backward(moment: Moment, calls: Sequence[Call]) -> list[Call]:
    """Sort calls by their gradients' order where the dump numbers them; else reverse the forward order."""
    forward, backward = first_orders(moment, FORWARD), first_orders(moment, BACKWARD)
    if set(forward.values()) & set(backward.values()):
        return sorted(calls, key=lambda call: -call.order)
    return sorted(calls, key=lambda call: backward[id(call)])


def first_orders(moment: Moment, roles: Sequence[Role]) -> dict[int, int]:
    """Return the first number in execution order of each call's tensors of these roles."""
    return {
        id(call): min(moment.rows[index].stored.order for index in row_indices)
        for call in moment.calls
        if (row_indices := [index for role in roles for index in call.row_indices.get(role, ())])
    }


def find_first_bad(rows: Sequence[Row]) -> Origin:
    """Return the first bad row; used if no row's inputs are known to be good."""
    index = min(
        (index for index, row in enumerate(rows) if row.result == "bad"),
        key=lambda place: (rows[place].stored.step, rows[place].stored.order),
    )
    stored = rows[index].stored
    why = "it is the first bad one in execution order; whether its inputs were still good the dump does not tell"
    return Origin(stored.op, "operator", stored.step, stored.rank, index, why)


def mark_followers(rows: Sequence[Row], origins: Sequence[Origin]) -> tuple[Row, ...]:
    """Mark bad rows that are no origin with the operator from which they follow."""
    own = {(origin.op, origin.step, origin.rank) for origin in origins}
    origin_rows = {origin.row for origin in origins}
    main = origins[0]
    return tuple(
        replace(row, follows_from=main.op)
        if row.result == "bad"
        and row.stored.step >= main.step
        and index not in origin_rows
        and (row.op, row.stored.step, row.stored.rank) not in own
        else row
        for index, row in enumerate(rows)
    )
