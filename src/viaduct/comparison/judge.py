"""Which operator is to blame: the first that is bad while all it was given is still good.

Step by step: parameters before anything runs, then the forward pass, the backward pass, the updates. A module whose own
parts are all good while its output is bad is itself the origin: what it computes between them is wrong. A small error
may grow before it crosses a threshold: if, before the first bad call, one turns equal inputs into an output that is
off by far more than rounding, that one is the origin. Everything bad behind an origin follows from it. Rounding that
grows from layer to layer until it crosses a threshold has no origin, and is said to have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viaduct.comparison.calls import BACKWARD, FORWARD, ROOT, Call, Moment, error_of, holds, moments
from viaduct.comparison.grids import BFLOAT16, FLOAT16, FLOAT32
from viaduct.comparison.rows import Origin, OriginKind, Row
from viaduct.comparison.tensors import Role, Stored

JUMP = 6.0  # an operator that makes an error this much larger than its inputs' brings in something of its own
ROUNDINGS = 4  # inputs no worse than this many roundings count as exact
CANCELLED = 10.0  # a weight's gradient sums what mostly cancels: errors grow by that without a fault
QUIET = 200  # roundings; more than sums in another order make of equal inputs
MOST_FURTHER = 20
FEW_WRONG, MOST_WRONG = 4, 0.2  # weights, and their share; where more differ in a later step it is no fault of theirs
EPSILONS = {"bfloat16": BFLOAT16.epsilon, "float16": FLOAT16.epsilon}


@dataclass(frozen=True)
class Judgement:
    """The rows, now with what they follow from, and the origins: the first is the answer."""

    rows: tuple[Row, ...]
    origins: tuple[Origin, ...] = ()
    growth: tuple[float, float] | None = None  # smallest and largest error, where rounding only accumulates
    apart: Apart | None = None  # where training itself has carried the weights apart


@dataclass(frozen=True)
class Apart:
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
    apart: Apart | None = None
    equal: dict[int, int] = {}  # of each rank, the last step that began with equal weights
    first = min(row.stored.step for row in rows if row.result == "bad")
    for moment in moments(rows, feeders):
        if moment.step > first:
            break  # that step had no origin of its own; what is bad later follows from it
        if moment.rank in equal and (parted := carried_apart(moment, equal[moment.rank])):
            gradual, apart = True, apart or parted
            continue
        if moment.parameters and not wrong_parameters(moment):
            equal[moment.rank] = moment.step
        found = origins_of(moment)
        sudden = [made for made in found if made.jump]
        gradual = gradual or bool(found)
        if sudden:
            # Behind the first origin nothing is exact any more: what has exact inputs all the same is on its own.
            origins = [sudden[0].origin, *(made.origin for made in sudden[1:] if made.clean)][: 1 + MOST_FURTHER]
            return Judgement(followed(rows, origins), tuple(origins))
    if gradual:
        until = [row for row in rows if row.stored.step <= first]
        errors = [error_of(row) for row in until if row.stored.role == "output"] or [error_of(row) for row in until]
        seen = [error for error in errors if 0 < error < math.inf] or [0.0]
        return Judgement(tuple(rows), growth=(min(seen), max(seen)), apart=apart)
    origin = earliest(rows)
    return Judgement(followed(rows, [origin]), (origin,))


def carried_apart(moment: Moment, before: int) -> Apart | None:
    """A single weight that differs is a fault of its own; most of them differ because the steps before did."""
    bad = sum(is_bad(moment, place) for place in moment.parameters)
    if bad <= max(FEW_WRONG, MOST_WRONG * len(moment.parameters)):
        return None
    return Apart(before, moment.step, bad, len(moment.parameters))


@dataclass(frozen=True)
class Candidate:
    origin: Origin
    coming: float  # the error of what it was given
    made: float  # its own
    rounding: float  # of its format
    order: float

    @property
    def clean(self) -> bool:
        """It was given what is equal but for a few roundings."""
        return self.coming <= ROUNDINGS * self.rounding

    @property
    def jump(self) -> bool:
        """Its error is its own, not a little more of what came in."""
        return self.made >= JUMP * self.coming


def origins_of(moment: Moment) -> list[Candidate]:
    """Everything in one step that is bad without a bad cause: of the first phase that has any."""
    for phase in (wrong_parameters, wrong_forward, wrong_backward, wrong_updates):
        found = sorted(phase(moment), key=lambda candidate: candidate.order)
        if found and phase is not wrong_parameters:
            before = found[0].order if phase is wrong_forward else math.inf
            return [*quiet(moment, before), *found]
        if found:
            return found
    return []


def quiet(moment: Moment, before: float) -> list[Candidate]:
    """The first call that makes of equal inputs an output far beyond rounding, though within its thresholds."""
    for call in moment.calls:
        outputs, inputs = call.places.get("output", []), given(moment, call)
        parts = [place for part in moment.within(call) for place in part.places.get("output", ())]
        if call.order >= before or not outputs or not inputs:
            continue
        coming, made = moment.error([*inputs, *parts]), moment.error(outputs)
        limit = rounding(moment.rows[outputs[0]])
        if coming <= ROUNDINGS * limit and made >= QUIET * limit and not moment.bad(call, "output"):
            why = (
                f"its output differs by {made:.2g} of the golden size: within the thresholds, but far beyond rounding, "
                f"while its inputs are equal (largest difference {coming:.2g}); what is bad grows from it"
            )
            return [candidate(moment, outputs, "operator", why, coming=coming, order=call.order)]
    return []


def wrong_parameters(moment: Moment) -> list[Candidate]:
    why = "it differs before anything was computed in this step"
    return [candidate(moment, [place], "parameter", why) for place in moment.parameters if is_bad(moment, place)]


def wrong_updates(moment: Moment) -> list[Candidate]:
    return [
        candidate(moment, [place], "parameter", why_updated(moment, moment.rows[place].stored))
        for place in moment.updates
        if is_bad(moment, place)
    ]


def why_updated(moment: Moment, update: Stored) -> str:
    """What can be said of the gradient that an update was made of."""
    made_of = [
        moment.rows[place]
        for call in moment.by_op.get(update.op, ())
        for place in call.places.get("gradient", ())
        if moment.rows[place].stored.index == update.index
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


def is_bad(moment: Moment, place: int) -> bool:
    return moment.rows[place].result == "bad"


def candidate(
    moment: Moment,
    places: Sequence[int],
    kind: OriginKind,
    why: str,
    *,
    op: str = "",
    coming: float = 0.0,
    order: float | None = None,
) -> Candidate:
    """The origin that these bad rows speak for."""
    row = moment.rows[places[0]]
    origin = Origin(op or row.op, kind, moment.step, moment.rank, places[0], why)
    return Candidate(origin, coming, moment.error(places), rounding(row), row.stored.order if order is None else order)


def wrong_forward(moment: Moment) -> list[Candidate]:
    found = [made for call in moment.calls if (made := wrong_output(moment, call)) is not None]
    first = wrong_input(moment, min((made.order for made in found), default=math.inf))
    return [*found, *([first] if first else [])]


def wrong_output(moment: Moment, call: Call) -> Candidate | None:
    """A call with a bad output, though its inputs and all its parts are good."""
    bad = moment.bad(call, "output")
    if not bad or moment.bad(call, "input"):
        return None
    parts = moment.within(call)
    if any(moment.bad(part, "input", "output") for part in parts):
        return None
    feeding = moment.feeding(call)
    inputs = call.places.get("input", [])
    if not inputs and any(moment.bad(other, "output") for other in feeding):
        return None
    if not inputs and not feeding and earlier_bad(moment, call):
        return None
    known = given(moment, call)
    coming = moment.error([*known, *(place for part in parts for place in part.places.get("output", ()))])
    order = max([call.order, *(part.order for part in parts)]) + (0.5 if parts else 0.0)
    why = reason(moment, bad[0], known, bool(parts))
    return candidate(moment, bad, "operator", why, coming=coming, order=order)


def given(moment: Moment, call: Call) -> list[int]:
    """Its dumped inputs; else the outputs of what feeds it."""
    return call.places.get("input") or fed(moment.feeding(call))


def earlier_bad(moment: Moment, call: Call) -> bool:
    """Without inputs or edges: whether anything before it is bad."""
    return any(other.order < call.order and moment.bad(other, "input", "output") for other in moment.calls)


def reason(moment: Moment, place: int, known: Sequence[int], parts: bool) -> str:
    said = f"its {moment.rows[place].stored.role} differs by {error_of(moment.rows[place]):.2g} of the golden size"
    if not known:
        return f"{said}; it is the first in execution order"
    inside = " and all modules within it" if parts else ""
    return f"{said}, while its inputs{inside} agree (largest difference {moment.error(known):.2g})"


def rounding(row: Row) -> float:
    """One rounding in the coarser of the two formats."""
    dtypes = [stored.dtype for stored in (row.pair.left, row.pair.right) if stored is not None]
    return max(EPSILONS.get(dtype, FLOAT32.epsilon) for dtype in dtypes)


def wrong_input(moment: Moment, before: float) -> Candidate | None:
    """The first input that is bad though all outputs before it are good: the network's own, or made in between."""
    for call in moment.calls:
        bad = moment.bad(call, "input")
        if call.order > before or (moment.bad(call, "output") and not bad):
            return None
        if bad:
            return described_input(moment, call, bad)
    return None


def described_input(moment: Moment, call: Call, bad: Sequence[int]) -> Candidate:
    """Who made a bad input, as far as the dump tells: the one that feeds it, the module around it, or the world."""
    feeding = sorted(moment.feeding(call), key=lambda other: other.order)
    unseen = [other for other in feeding if not measured_outputs(moment, other)]
    around = [other for other in moment.calls if holds(other.op, call.op)]
    healthy = [other for other in around if other.places.get("input") and not moment.bad(other, "input")]
    differs = f"the input of {call.op} differs by {moment.error(bad):.2g} of the golden size"
    if behind_the_network(moment, call):
        return entering_the_loss(moment, call, bad, differs)
    if unseen and not moment.bad(unseen[-1], "input"):
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
        return entering(moment, call, around, bad)
    coming = moment.error(fed(feeding)) if fed(feeding) else so_far(moment, call)
    return candidate(moment, bad, "operator", why, op=op, coming=coming, order=call.order - 0.5)


def entering(moment: Moment, call: Call, around: Sequence[Call], bad: Sequence[int]) -> Candidate:
    """What goes into the network is bad: told of the outermost module that has it."""
    outermost = min([*around, call], key=lambda other: len(other.op) if other.op != ROOT else 0)
    places = moment.bad(outermost, "input") or bad
    why = "what enters the network differs already: look at the input pipeline"
    return candidate(moment, places, "input", why, order=call.order - 0.5)


def behind_the_network(moment: Moment, call: Call) -> bool:
    """Whether the network had ended when this was called, as a loss is. Our dumps number a module when it ends."""
    ended = [root for root in moment.by_op.get(ROOT, ()) if root.order < call.order]
    return any(part.order < root.order for root in ended for part in moment.within(root)) and "." not in call.op


def entering_the_loss(moment: Moment, call: Call, bad: Sequence[int], differs: str) -> Candidate:
    """The labels, or what the training loop makes of the network's output."""
    number = moment.rows[bad[0]].stored.index
    why = f"{differs} (number {number} of what enters it), though all that the network computed agrees: look at the "
    why += "input pipeline and the training loop"
    return candidate(moment, bad, "input", why, order=call.order - 0.5)


def measured_outputs(moment: Moment, call: Call) -> bool:
    return any(moment.rows[place].measures is not None for place in call.places.get("output", ()))


def fed(feeding: Sequence[Call]) -> list[int]:
    return [place for other in feeding for place in other.places.get("output", ())]


def so_far(moment: Moment, call: Call) -> float:
    """The error of the last outputs before a call."""
    before = [other for other in moment.calls if other.order < call.order and other.places.get("output")]
    return moment.error(before[-1].places["output"]) if before else 0.0


def wrong_backward(moment: Moment) -> list[Candidate]:
    """The forward pass being good: the first gradient that is bad. Gradients run against the order of the calls."""
    calls = in_backward_order(moment, [call for call in moment.calls if any(map(call.places.get, BACKWARD))])
    ops = {call.op for call in calls if moment.bad(call, *BACKWARD)}
    bad = [call for call in calls if call.op in ops and not any(part.op in ops for part in moment.within(call))]
    if not bad:
        return []
    first = next((call for call in bad if moment.bad(call, *BACKWARD)), bad[0])
    before = [call for call in calls[: calls.index(first)] if not holds(call.op, first.op)]
    if moment.bad(first, "grad_output") or not first.places.get("grad_output"):
        return [wrong_on_arrival(moment, first, before)]
    made = moment.bad(first, "grad_input", "gradient")
    differs = f"the gradient it hands on differs by {moment.error(made):.2g}"
    why = f"{differs}, while the one it was given and the forward pass agree"
    coming = max(moment.error(first.places.get("grad_output", ())), kinks(moment, [first]))
    if not moment.bad(first, "grad_input"):
        coming *= CANCELLED
    return [candidate(moment, made, "operator", why, coming=coming)]


def wrong_on_arrival(moment: Moment, first: Call, before: Sequence[Call]) -> Candidate:
    """A gradient that is bad when it comes: from the loss, or between two operators."""
    bad = moment.bad(first, "grad_output") or moment.bad(first, *BACKWARD)
    differs = f"the gradient at {first.op} differs by {moment.error(bad):.2g}, while the forward pass agrees"
    if not before:
        return candidate(moment, bad, "input", f"{differs}, and it is the first of all gradients: labels or loss")
    handing = [call for call in before if first.op in moment.feeders.get(call.op, ())] or before[-1:]
    coming = moment.error(place for call in handing for place in call.places.get("grad_input", ()))
    why = f"{differs}, and so do the gradients before it (largest difference {coming:.2g})"
    return candidate(moment, bad, "operator", why, coming=max(coming, kinks(moment, [first, *handing])))


def kinks(moment: Moment, calls: Sequence[Call]) -> float:
    """The error that a ReLU may bring into a gradient when the values that it saw differ by a little.

    Of normal values about a share e lies within e of the kink: there the gradient is passed on by one side and not by
    the other, so that its relative error is the root of that share. Seen on a GPU: 8e-5 forward, 5.5e-3 backward.
    """
    return math.sqrt(moment.error(place for call in calls for role in FORWARD for place in call.places.get(role, ())))


def in_backward_order(moment: Moment, calls: Sequence[Call]) -> list[Call]:
    """Where the dump numbers gradients on from the forward pass, by these numbers; else the forward order, reversed."""
    forward, backward = orders(moment, FORWARD), orders(moment, BACKWARD)
    if set(forward.values()) & set(backward.values()):
        return sorted(calls, key=lambda call: -call.order)
    return sorted(calls, key=lambda call: backward[id(call)])


def orders(moment: Moment, roles: Sequence[Role]) -> dict[int, int]:
    """The first place in execution order of each call's tensors of these roles."""
    return {
        id(call): min(moment.rows[place].stored.order for place in places)
        for call in moment.calls
        if (places := [place for role in roles for place in call.places.get(role, ())])
    }


def earliest(rows: Sequence[Row]) -> Origin:
    """The first bad row, where the inputs of none could be seen to be good."""
    place = min(
        (place for place, row in enumerate(rows) if row.result == "bad"),
        key=lambda place: (rows[place].stored.step, rows[place].stored.order),
    )
    stored = rows[place].stored
    why = "it is the first bad one in execution order; whether its inputs were still good the dump does not tell"
    return Origin(stored.op, "operator", stored.step, stored.rank, place, why)


def followed(rows: Sequence[Row], origins: Sequence[Origin]) -> tuple[Row, ...]:
    """Bad rows that are no origin, with the operator that they follow from."""
    own = {(origin.op, origin.step, origin.rank) for origin in origins}
    places = {origin.row for origin in origins}
    main = origins[0]
    return tuple(
        replace(row, follows_from=main.op)
        if row.result == "bad"
        and row.stored.step >= main.step
        and place not in places
        and (row.op, row.stored.step, row.stored.rank) not in own
        else row
        for place, row in enumerate(rows)
    )
