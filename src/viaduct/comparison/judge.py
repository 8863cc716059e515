"""The origin (first divergence): the first operator with a bad output and no bad input.

It is sought in the first step with a bad row: in the parameters, then in the forward pass, in the backward pass and in
the updates of the weights.

- A module with a bad output is itself the origin if neither its inputs nor its inner modules are bad.
- A call before the first bad one is the origin, though no threshold is crossed there, if its inputs agree up to
  rounding and its output is off by far more: the error then grew from call to call until it crossed a threshold.
- If errors grow from layer to layer without a jump, as rounding does, until they cross a threshold, there is no origin.
- If the dump shows no inputs, the first bad tensor in execution order is the origin.

Other bad rows of the origin's step or later are marked as following from it, except further origins; nothing checks
that they do. The golden size in messages is the size of the right tensor (SideStatistics.size).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from viaduct.comparison.calls import (
    BACKWARD_ROLES,
    FORWARD_ROLES,
    Call,
    RankStep,
    compute_error,
    contains_module,
    group_by_step,
)
from viaduct.comparison.grids import BFLOAT16, FLOAT16, FLOAT32
from viaduct.comparison.naming import ROOT_MODULE
from viaduct.comparison.records import Origin, OriginKind, Role, Row, StoredTensor

JUMP_FACTOR = 6.0  # an operator has an error of its own if its output's error is at least this many times its inputs'
EXACT_ROUNDINGS = 4  # inputs with an error of at most this many roundings count as exact
# Most terms of a weight's gradient cancel, so its relative error may be this many times that of the inputs.
CANCELLATION_FACTOR = 10.0
REORDERING_ROUNDINGS = 200  # sums in another order differ by fewer roundings, given equal inputs
MAX_FURTHER = 20  # origins that are listed after the first
# If more weights than this number and this share are bad in a later dumped step, and none was before, the two trainings
# drifted apart; fewer bad weights are origins.
MAX_WRONG_WEIGHTS, MAX_WRONG_SHARE = 4, 0.2
EPSILONS = {"bfloat16": BFLOAT16.epsilon, "float16": FLOAT16.epsilon}


@dataclass(frozen=True)
class Judgement:
    """Result of judging: the rows, with `follows_from` filled in, and the origins, the main one first."""

    rows: tuple[Row, ...]
    origins: tuple[Origin, ...] = ()
    # If errors grow without an origin: the smallest error above 0 and the largest finite one, of outputs if possible.
    error_range: tuple[float, float] | None = None
    weight_drift: WeightDrift | None = None  # if the weights drifted apart between dumped steps


@dataclass(frozen=True)
class WeightDrift:
    """Weights of which none was bad in one dumped step, while many are bad in a later one."""

    before: int  # the last dumped step that began without a bad weight
    after: int  # the step that began with bad weights
    weights: int  # number of bad weights
    all_weights: int


def judge(rows: Sequence[Row], producers: Mapping[str, tuple[str, ...]]) -> Judgement:
    """Find the origins, and mark the rows that follow from them.

    `producers`: operator -> the operators whose outputs it reads.
    """
    if not any(row.result == "bad" for row in rows):
        return Judgement(tuple(rows))
    is_gradual = False  # True: what is bad has candidates, but none with a jump
    weight_drift: WeightDrift | None = None
    last_step_before_bad: dict[int, int] = {}  # of each rank, the last step that began without a bad weight
    first_bad = min(row.tensor.step for row in rows if row.result == "bad")
    for step in group_by_step(rows, producers):
        if step.number > first_bad:
            break  # only the first bad step is searched: what is bad later may follow from it
        before = last_step_before_bad.get(step.rank)
        if before is not None and (drift := find_weight_drift(step, before)):
            is_gradual, weight_drift = True, weight_drift or drift
            continue
        if step.parameters and not find_wrong_parameters(step):
            last_step_before_bad[step.rank] = step.number
        candidates = find_candidates(step)
        is_gradual = is_gradual or bool(candidates)
        if jumps := [candidate for candidate in candidates if candidate.is_jump]:
            # After the first origin few inputs are exact, so an operator with exact inputs is an origin of its own.
            further = [candidate.origin for candidate in jumps[1:] if candidate.has_exact_inputs]
            origins = [jumps[0].origin, *further[:MAX_FURTHER]]
            return Judgement(mark_followers(rows, origins), tuple(origins))
    if is_gradual:
        searched = [row for row in rows if row.tensor.step <= first_bad]
        outputs = [row for row in searched if row.tensor.role == "output"]
        finite = [error for row in outputs or searched if 0 < (error := compute_error(row)) < math.inf] or [0.0]
        return Judgement(tuple(rows), error_range=(min(finite), max(finite)), weight_drift=weight_drift)
    origin = find_first_bad(rows)
    return Judgement(mark_followers(rows, [origin]), (origin,))


def find_weight_drift(step: RankStep, before: int) -> WeightDrift | None:
    """Return the drift if many weights are bad, else None. `before`: the last step that began without a bad one."""
    bad = sum(is_bad(step, index) for index in step.parameters)
    if bad <= max(MAX_WRONG_WEIGHTS, MAX_WRONG_SHARE * len(step.parameters)):
        return None
    return WeightDrift(before, step.number, bad, len(step.parameters))


@dataclass(frozen=True)
class Candidate:
    """A possible origin, with the largest error of its inputs (0 if none was compared) and of its own bad tensors."""

    origin: Origin
    input_error: float
    own_error: float
    rounding: float  # relative error of one rounding in the coarser of both sides' formats
    order: float  # position in execution order; a half lies between two calls

    @property
    def has_exact_inputs(self) -> bool:
        return self.input_error <= EXACT_ROUNDINGS * self.rounding

    @property
    def is_jump(self) -> bool:
        """Return True if the error does not come from the inputs."""
        return self.own_error >= JUMP_FACTOR * self.input_error


def find_candidates(step: RankStep) -> list[Candidate]:
    """Return the candidates of the first phase of a step that has any, in execution order; empty if no phase has.

    The phases are parameters, outputs, gradients and updates. The call that `find_hidden_origin` returns, which ran
    before the candidates, precedes them, except before wrong parameters.
    """
    for phase in (find_wrong_parameters, find_wrong_outputs, find_wrong_gradients, find_wrong_updates):
        if candidates := sorted(phase(step), key=lambda candidate: candidate.order):
            if phase is find_wrong_parameters:
                return candidates
            before = candidates[0].order if phase is find_wrong_outputs else math.inf
            return [*find_hidden_origin(step, before), *candidates]
    return []


def find_hidden_origin(step: RankStep, before: float) -> list[Candidate]:
    """Return the first call with inputs that agree up to rounding and an output that is off by far more, but not bad.

    It is a list of one candidate, or an empty one. `before`: only calls before this position are searched.
    """
    for call in step.calls:
        outputs, inputs = call.row_indices.get("output", []), list_input_rows(step, call)
        if call.order >= before or not outputs or not inputs:
            continue
        input_error = step.find_largest_error([*inputs, *list_output_rows(step.list_inner_calls(call))])
        own_error, unit = step.find_largest_error(outputs), find_rounding_unit(step.rows[outputs[0]])
        is_far_off = input_error <= EXACT_ROUNDINGS * unit and own_error >= REORDERING_ROUNDINGS * unit
        if is_far_off and not step.list_bad_rows(call, "output"):
            why = (
                f"its output differs by {own_error:.2g} of the golden size: within the thresholds, but far beyond "
                f"rounding, while its inputs agree up to rounding (largest difference {input_error:.2g}); what is bad "
                "ran after it"
            )
            return [make_candidate(step, outputs, "operator", why, input_error=input_error, order=call.order)]
    return []


def find_wrong_parameters(step: RankStep) -> list[Candidate]:
    """Return the candidates for the parameters that are bad before the step."""
    why = "it differs before anything was computed in this step"
    return [make_candidate(step, [index], "parameter", why) for index in step.parameters if is_bad(step, index)]


def find_wrong_updates(step: RankStep) -> list[Candidate]:
    """Return the candidates for bad updates. `find_candidates` gets here only if no weight or gradient is bad."""
    candidates = []
    for index in filter(partial(is_bad, step), step.updates):
        update = step.rows[index].tensor
        why = f"its update differs; {describe_weight(step, update)}; {describe_gradient(step, update)}"
        candidates.append(make_candidate(step, [index], "parameter", why))
    return candidates


def describe_weight(step: RankStep, update: StoredTensor) -> str:
    """Describe the weight of an update as it was before the step."""
    for row in (step.rows[index] for index in step.parameters):
        if (row.tensor.op, row.tensor.index) == (update.op, update.index):
            return "the weight itself agrees" if row.is_compared else "the weight itself was not compared"
    return "the weight itself was not dumped"


def describe_gradient(step: RankStep, update: StoredTensor) -> str:
    """Describe the gradient that an update was computed from."""
    gradients = [
        step.rows[index]
        for call in step.calls_by_op.get(update.op, ())
        for index in call.row_indices.get("gradient", ())
        if step.rows[index].tensor.index == update.index
    ]
    if not gradients:
        return "its gradient was not dumped"
    for row in gradients:
        for side, tensor in (("left", row.pair.left), ("right", row.pair.right)):
            if tensor is None:
                return f"it has no gradient on the {side}"
        if not row.is_compared:
            return f"its gradient was not compared: {row.reason}"
    return "its gradient agrees"


def is_bad(step: RankStep, index: int) -> bool:
    return step.rows[index].result == "bad"


def make_candidate(
    step: RankStep,
    row_indices: Sequence[int],
    kind: OriginKind,
    why: str,
    *,
    op: str = "",
    input_error: float = 0.0,
    order: float | None = None,
    are_inputs_known: bool = True,
) -> Candidate:
    """Return the candidate for some bad rows, or for the output of a hidden origin.

    The first row gives the defaults of `op` and `order`. `are_inputs_known`: the candidate's inputs were compared.
    """
    row = step.rows[row_indices[0]]
    origin = Origin(op or row.op, kind, step.number, step.rank, row_indices[0], why, are_inputs_known)
    position = row.tensor.order if order is None else order
    return Candidate(origin, input_error, step.find_largest_error(row_indices), find_rounding_unit(row), position)


def find_wrong_outputs(step: RankStep) -> list[Candidate]:
    """Return the candidates for calls with a bad output and no bad input, and for the first bad input before them."""
    candidates = [candidate for call in step.calls if (candidate := check_output(step, call)) is not None]
    first = find_wrong_input(step, min((candidate.order for candidate in candidates), default=math.inf))
    return [*candidates, *([first] if first else [])]


def check_output(step: RankStep, call: Call) -> Candidate | None:
    """Return the candidate if the call's output is bad, but neither its inputs nor the modules within it; else None.

    If its inputs were not dumped, the outputs that it reads must not be bad. If it is not known which these are, no
    earlier call may have a bad input or output.
    """
    bad = step.list_bad_rows(call, "output")
    if not bad or step.list_bad_rows(call, "input"):
        return None
    parts = step.list_inner_calls(call)
    if any(step.list_bad_rows(part, "input", "output") for part in parts):
        return None
    producing = step.list_producing_calls(call)
    inputs = call.row_indices.get("input", [])
    if not inputs and any(step.list_bad_rows(other, "output") for other in producing):
        return None
    earlier = (other for other in step.calls if other.order < call.order)
    if not inputs and not producing and any(step.list_bad_rows(other, "input", "output") for other in earlier):
        return None
    known = list_input_rows(step, call)
    input_error = step.find_largest_error([*known, *list_output_rows(parts)])
    order = max([call.order, *(part.order for part in parts)]) + (0.5 if parts else 0.0)
    inner = [index for part in parts for role in FORWARD_ROLES for index in part.row_indices.get(role, ())]
    why = describe_output(step, bad[0], known, inner)
    are_known = is_each_compared(step, known)
    return make_candidate(step, bad, "operator", why, input_error=input_error, order=order, are_inputs_known=are_known)


def is_each_compared(step: RankStep, row_indices: Sequence[int]) -> bool:
    """Return True if there are rows, and all of them were compared."""
    return bool(row_indices) and not count_uncompared(step, row_indices)


def count_uncompared(step: RankStep, row_indices: Sequence[int]) -> int:
    return sum(not step.rows[index].is_compared for index in row_indices)


def list_input_rows(step: RankStep, call: Call) -> list[int]:
    """Return the rows of a call's dumped inputs, else the rows of the outputs that feed it."""
    return call.row_indices.get("input") or list_output_rows(step.list_producing_calls(call))


def describe_output(step: RankStep, index: int, known: Sequence[int], inner: Sequence[int]) -> str:
    """Describe the error of an output, of its inputs (`known`) and of the tensors of modules within it (`inner`)."""
    differs = f"its {step.rows[index].tensor.role} differs by {compute_error(step.rows[index]):.2g} of the golden size"
    if not known:
        return f"{differs}; the dump does not tell whether its inputs were good"
    if uncompared := count_uncompared(step, [*known, *inner]):
        inside = " and no tensor of a module within it" if inner else ""
        total = len(known) + len(inner)
        return f"{differs}, while none of its inputs{inside} is bad; {uncompared} of {total} could not be compared"
    inside = " and the dumped modules within it" if inner else ""
    largest = step.find_largest_error([*known, *inner])
    return f"{differs}, while its inputs{inside} agree (largest difference {largest:.2g})"


def find_rounding_unit(row: Row) -> float:
    """Return the relative error of one rounding in the coarser of a row's two formats: 16 bits, else float32."""
    dtypes = [tensor.dtype for tensor in (row.pair.left, row.pair.right) if tensor is not None]
    return max(EPSILONS.get(dtype, FLOAT32.epsilon) for dtype in dtypes)


def find_wrong_input(step: RankStep, before: float) -> Candidate | None:
    """Return the candidate for the first bad input up to the position `before`; None if an output before it is bad."""
    for call in step.calls:
        bad = step.list_bad_rows(call, "input")
        if call.order > before or (step.list_bad_rows(call, "output") and not bad):
            return None
        if bad:
            return explain_input(step, call, bad)
    return None


def explain_input(step: RankStep, call: Call, bad: Sequence[int]) -> Candidate:
    """Return the candidate for a bad input.

    Its operator is the last producer, if its output was not compared and its inputs are not bad; else the innermost
    module around the call that has inputs, none of them bad; else the call itself. Its kind is "input" if the tensor
    enters the network or the loss.
    """
    differs = f"the input of {call.op} differs by {step.find_largest_error(bad):.2g} of the golden size"
    if is_after_network(step, call):
        return explain_loss_input(step, call, bad, differs)
    producing = sorted(step.list_producing_calls(call), key=lambda other: other.order)
    uncompared = [
        other for other in producing if all(step.rows[index].measures is None for index in list_output_rows([other]))
    ]
    around = [other for other in step.calls if contains_module(other.op, call.op)]
    healthy = [other for other in around if other.row_indices.get("input") and not step.list_bad_rows(other, "input")]
    if uncompared and not step.list_bad_rows(uncompared[-1], "input"):
        op, inputs = uncompared[-1].op, list_input_rows(step, uncompared[-1])
        why = f"{differs}; it comes from {op}, whose own output could not be compared"
    elif healthy:
        inner = max(healthy, key=lambda other: len(other.op) if other.op != ROOT_MODULE else 0)
        op, inputs = inner.op, inner.row_indices["input"]
        why = (
            f"{differs}, though no input of {op} is bad and no module before {call.op}: it happens in {op}'s "
            f"own code, just before {call.op}"
        )
    elif producing:
        op, inputs = call.op, list_output_rows(producing)
        why = f"{differs}, though no compared output that feeds it is bad: something between them is different"
    elif is_network_input(step, call, around):
        return explain_network_input(step, call, around, bad)
    else:
        op, inputs = call.op, []
        why = f"{differs}, though no output before it is bad; the dump does not tell what feeds it"
    error = step.find_largest_error(list_output_rows(producing) or list_last_output_rows(step, call))
    are_known, order = is_each_compared(step, inputs), call.order - 0.5
    return make_candidate(step, bad, "operator", why, op=op, input_error=error, order=order, are_inputs_known=are_known)


def list_last_output_rows(step: RankStep, call: Call) -> list[int]:
    """Return the output rows of the last earlier call that has any."""
    before = [other for other in step.calls if other.order < call.order and list_output_rows([other])]
    return list_output_rows(before[-1:])


def is_network_input(step: RankStep, call: Call, around: Sequence[Call]) -> bool:
    """Return True if the bad input of a call, which no known operator feeds, is an input of the network.

    It is one if a module around the call has a bad input too, if the dump has edges (none of them to this call), or if
    no operator with a dumped output ran before.
    """
    is_bad_around = any(step.list_bad_rows(other, "input") for other in around)
    return is_bad_around or bool(step.producers) or not list_last_output_rows(step, call)


def explain_network_input(step: RankStep, call: Call, around: Sequence[Call], bad: Sequence[int]) -> Candidate:
    """Return the candidate for a bad network input, reported at the outermost module that has it."""
    outermost = min([*around, call], key=lambda other: len(other.op) if other.op != ROOT_MODULE else 0)
    row_indices = step.list_bad_rows(outermost, "input") or bad
    why = "what enters the network differs already: look at the input pipeline"
    return make_candidate(step, row_indices, "input", why, order=call.order - 0.5)


def is_after_network(step: RankStep, call: Call) -> bool:
    """Return True for a call after the network's end, such as a loss, if the dump shows this end.

    A module's order is the position of its end. A name with a dot does not count: it belongs to a module within another
    one, not to a loss.
    """
    ended = [root for root in step.calls_by_op.get(ROOT_MODULE, ()) if root.order < call.order]
    return any(part.order < root.order for root in ended for part in step.list_inner_calls(root)) and "." not in call.op


def explain_loss_input(step: RankStep, call: Call, bad: Sequence[int], differs: str) -> Candidate:
    """Return the candidate for a loss with a bad input: labels, or values that the script computes from the output."""
    why = (
        f"{differs} (input number {step.rows[bad[0]].tensor.index}), though no compared tensor of the network is bad: "
        "look at the input pipeline and the training loop"
    )
    return make_candidate(step, bad, "input", why, order=call.order - 0.5)


def list_output_rows(calls: Sequence[Call]) -> list[int]:
    return [index for call in calls for index in call.row_indices.get("output", ())]


def find_wrong_gradients(step: RankStep) -> list[Candidate]:
    """Return the candidate for the first bad gradient; empty if none is bad. Called if no output has a candidate."""
    calls = sort_backward(step, [call for call in step.calls if any(map(call.row_indices.get, BACKWARD_ROLES))])
    # A module with bad gradients does not count if a module within it has bad gradients too.
    ops = {call.op for call in calls if step.list_bad_rows(call, *BACKWARD_ROLES)}
    bad = [call for call in calls if call.op in ops and not any(part.op in ops for part in step.list_inner_calls(call))]
    if not bad:
        return []
    first = next((call for call in bad if step.list_bad_rows(call, *BACKWARD_ROLES)), bad[0])
    before = [call for call in calls[: calls.index(first)] if not contains_module(call.op, first.op)]
    if step.list_bad_rows(first, "grad_output") or not first.row_indices.get("grad_output"):
        return [explain_arriving_gradient(step, first, before)]
    sent = step.list_bad_rows(first, "grad_input", "gradient")
    differs = f"the gradient it hands on differs by {step.find_largest_error(sent):.2g}"
    given = first.row_indices["grad_output"]
    why = f"{differs}, while no compared gradient that it was given is bad, and no compared tensor of the forward pass"
    error = max(step.find_largest_error(given), estimate_relu_error(step, [first]))
    if not step.list_bad_rows(first, "grad_input"):
        error *= CANCELLATION_FACTOR
    are_known = is_each_compared(step, given)
    return [make_candidate(step, sent, "operator", why, input_error=error, are_inputs_known=are_known)]


def explain_arriving_gradient(step: RankStep, first: Call, before: Sequence[Call]) -> Candidate:
    """Return the candidate for a gradient that is bad when it arrives at the call `first`."""
    bad = step.list_bad_rows(first, "grad_output") or step.list_bad_rows(first, *BACKWARD_ROLES)
    differs = (
        f"the gradient at {first.op} differs by {step.find_largest_error(bad):.2g}, while no compared tensor of the "
        "forward pass is bad"
    )
    if not before:
        why = f"{differs}, and it is the first of all dumped gradients: look at labels or loss"
        return make_candidate(step, bad, "input", why)
    # The calls that read the output of `first` pass it the gradient in the backward pass.
    readers = [call for call in before if first.op in step.producers.get(call.op, ())] or before[-1:]
    gradients = [index for call in readers for index in call.row_indices.get("grad_input", ())]
    error, are_known = step.find_largest_error(gradients), is_each_compared(step, gradients)
    known = f"differ by {error:.2g} at most" if are_known else "were not all compared"
    why = f"{differs}; the gradients that it is computed from {known}"
    error = max(error, estimate_relu_error(step, [first, *readers]))
    return make_candidate(step, bad, "operator", why, input_error=error, are_inputs_known=are_known)


def estimate_relu_error(step: RankStep, calls: Sequence[Call]) -> float:
    """Estimate the gradient error that a ReLU causes if its input differs a little.

    If the input differs by e, about a share e of normally distributed values changes its sign. For these, only one side
    passes the gradient on, so its relative error is about the root of e (8e-5 became 5.5e-3 when measured on a GPU).
    Called for any operator: the dump does not tell which are followed by a ReLU.
    """
    row_indices = [index for call in calls for role in FORWARD_ROLES for index in call.row_indices.get(role, ())]
    return math.sqrt(step.find_largest_error(row_indices))


def sort_backward(step: RankStep, calls: Sequence[Call]) -> list[Call]:
    """Sort calls by the order of their gradients, or in reverse forward order if gradients are not numbered."""
    forward, backward = find_first_orders(step, FORWARD_ROLES), find_first_orders(step, BACKWARD_ROLES)
    if set(forward.values()) & set(backward.values()):
        return sorted(calls, key=lambda call: -call.order)
    return sorted(calls, key=lambda call: backward[id(call)])


def find_first_orders(step: RankStep, roles: Sequence[Role]) -> dict[int, int]:
    """Return the lowest order of each call's tensors with these roles, by id of the call."""
    return {
        id(call): min(step.rows[index].tensor.order for index in row_indices)
        for call in step.calls
        if (row_indices := [index for role in roles for index in call.row_indices.get(role, ())])
    }


def find_first_bad(rows: Sequence[Row]) -> Origin:
    """Return the first bad row as the origin, if no phase of the first bad step had a candidate."""
    index = min(
        (index for index, row in enumerate(rows) if row.result == "bad"),
        key=lambda index: (rows[index].tensor.step, rows[index].tensor.order),
    )
    tensor = rows[index].tensor
    why = "it is the first bad one in execution order; the dump does not tell whether its inputs were still good"
    return Origin(tensor.op, "operator", tensor.step, tensor.rank, index, why, are_inputs_known=False)


def mark_followers(rows: Sequence[Row], origins: Sequence[Origin]) -> tuple[Row, ...]:
    """Set `follows_from` of bad rows that are not an origin."""
    origin_calls = {(origin.op, origin.step, origin.rank) for origin in origins}
    origin_rows = {origin.row_index for origin in origins}
    main, marked = origins[0], list(rows)
    for index, row in enumerate(rows):
        is_origin = index in origin_rows or (row.op, row.tensor.step, row.tensor.rank) in origin_calls
        if row.result == "bad" and row.tensor.step >= main.step and not is_origin:
            marked[index] = replace(row, follows_from=main.op)
    return tuple(marked)
