"""Alignment: pairs each tensor of the left dump with its counterpart on the right.

Steps and ranks are paired first, then their tensors: by the user's rules file (rules.py), by the compiled graph of the
left side (fusion.py), by name and, without a graph, by structure (structure.py). A tensor without a partner becomes a
pair with one side None and a `reason`. The missing side is named `*` if nothing on it corresponds, for example if the
compiler inserted the operator or fused it away.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from viaduct.comparison import fusion
from viaduct.comparison.graph import Graph, Node, read_graph
from viaduct.comparison.naming import WRAPPERS
from viaduct.comparison.readers.listing import join_some
from viaduct.comparison.records import INSERTED, MatchedBy, Pair, Role, StoredDump, StoredTensor
from viaduct.comparison.rules import Rules, read_rules
from viaduct.comparison.structure import UnmatchedCall, align_operators, can_align

# Order of a call's tensors in the table.
ROLE_ORDER: tuple[Role, ...] = ("input", "parameter", "output", "grad_output", "grad_input", "gradient", "update")
UNORDERED_KINDS = ("folder", "tfdbg")  # these dumps do not record the order of execution
_SEPARATORS = re.compile(r"[/.:\\\s]+")
_UNDERSCORES = re.compile(r"_+")

Key = tuple[Hashable, ...]
GroupKey = TypeVar("GroupKey", bound=Hashable)


@dataclass(frozen=True)
class Alignment:
    """Pairs of the tensors of two dumps, from `align`."""

    pairs: list[Pair]  # in order of execution, with every tensor that the rules do not ignore
    notes: tuple[str, ...] = ()  # for the user: unmatched steps, ambiguous names, ignored tensors
    # Operator (by its left name if it has one) -> the operators that feed it.
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class OrderedPair(NamedTuple):
    """A pair with the keys that give its position in the table."""

    pair: Pair
    group: Key  # pairs of one group are adjacent and get one group number
    sort_key: tuple[float, ...]  # of the pair in its group; groups are sorted by the smallest key of their pairs


@dataclass
class StepPairing:
    """Pairing of one step of one rank: the tensors that are in no pair yet, and the pairs so far.

    `number_groups` gives the pairs their final group numbers.
    """

    left: list[StoredTensor]
    right: list[StoredTensor]
    ordered_pairs: list[OrderedPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, left: StoredTensor, pair: Pair) -> None:
        """Add a pair at the position of its left tensor."""
        self.ordered_pairs.append(OrderedPair(pair, ("op", left.order, left.op, left.call), make_sort_key(left)))

    def add_match(self, left: StoredTensor, right: StoredTensor, by: MatchedBy, confidence: float = 1.0) -> None:
        self.add(left, Pair(0, left, right, left.op, right.op, by, confidence))

    def add_left_only(self, left: StoredTensor, right_op: str, reason: str) -> None:
        """Add a pair without a right tensor. `right_op`: the name to show in its place."""
        self.add(left, Pair(0, left, None, left.op, right_op, "none", reason=reason))

    def add_note(self, note: str) -> None:
        """Add a note unless it is there already."""
        if note not in self.notes:
            self.notes.append(note)

    def drop(self, tensors: Iterable[StoredTensor]) -> None:
        """Remove tensors, which are in a pair or ignored, from `left` and `right`."""
        ids = set(map(id, tensors))
        self.left = [tensor for tensor in self.left if id(tensor) not in ids]
        self.right = [tensor for tensor in self.right if id(tensor) not in ids]

    def pair_by_key(self, key: Callable[[StoredTensor], Key]) -> list[Key]:
        """Pair tensors whose key is unique on both sides. Return the keys that both sides have, but not only once."""
        left_groups, right_groups = _group_by(self.left, key), _group_by(self.right, key)
        paired: list[StoredTensor] = []
        ambiguous = []
        for tensor_key, tensors in left_groups.items():
            others = right_groups.get(tensor_key, [])
            if len(tensors) == len(others) == 1:
                self.add_match(tensors[0], others[0], "name")
                paired += [tensors[0], others[0]]
            elif others:
                ambiguous.append(tensor_key)
        self.drop(paired)
        return ambiguous


def make_sort_key(tensor: StoredTensor) -> tuple[float, ...]:
    """Return the position of a tensor in execution order."""
    return (tensor.order, tensor.call, ROLE_ORDER.index(tensor.role), tensor.index)


def _group_by(
    tensors: Iterable[StoredTensor], key: Callable[[StoredTensor], GroupKey]
) -> dict[GroupKey, list[StoredTensor]]:
    groups: dict[GroupKey, list[StoredTensor]] = defaultdict(list)
    for tensor in tensors:
        groups[key(tensor)].append(tensor)
    return groups


def align(
    left: StoredDump,
    right: StoredDump,
    graph: Graph | Path | None = None,
    rules: Rules | Path | None = None,
    graph_right: Graph | Path | None = None,
) -> Alignment:
    """Pair the tensors of both sides; every tensor that the rules do not ignore is in at least one pair.

    `graph`: the compiled graph of the left side; `graph_right`: of the right side, used with `graph` only.
    """
    graph = read_graph(graph) if isinstance(graph, Path) else graph
    graph_right = read_graph(graph_right) if isinstance(graph_right, Path) else graph_right
    rules = read_rules(rules) if isinstance(rules, Path) else rules
    notes = [*(graph.notes if graph else ()), *(graph_right.notes if graph_right else ())]
    pairings = pair_steps(left, right, rules.step_offset if rules else 0, notes)
    is_ordered = left.kind not in UNORDERED_KINDS and right.kind not in UNORDERED_KINDS
    pairs: list[Pair] = []
    for pairing in pairings:
        if rules:
            match_by_rules(pairing, rules)
        if graph:
            match_by_graph(pairing, graph, graph_right)
        match_by_name(pairing, without_roles="folder" in (left.kind, right.kind))
        if not graph:
            match_by_structure(pairing, is_ordered)
        add_unmatched(pairing, graph)
        pairs += number_groups(pairing, pairs[-1].group + 1 if pairs else 0)
        notes += [note for note in pairing.notes if note not in notes]
    return Alignment(pairs, tuple(notes), select_edges(left, right, graph, pairs))


# Steps and ranks.


def pair_steps(left: StoredDump, right: StoredDump, offset: int, notes: list[str]) -> list[StepPairing]:
    """Match steps and ranks by number. What only one side has gets a pairing in which the other side is empty.

    Step s of the left belongs to step s + `offset` of the right. If no numbers match and each side has a single step
    (or rank), these two are matched.
    """
    left_groups, right_groups = (
        _group_by(side.tensors, lambda tensor: (tensor.step, tensor.rank)) for side in (left, right)
    )
    steps = _match_numbers({step for step, _ in left_groups}, {step for step, _ in right_groups}, offset, "step", notes)
    ranks = _match_numbers({rank for _, rank in left_groups}, {rank for _, rank in right_groups}, 0, "rank", notes)
    pairings = []
    for (step, rank), tensors in sorted(left_groups.items()):
        key = (steps.get(step, -1), ranks.get(rank, -1))
        pairings.append(StepPairing(list(tensors), list(right_groups.pop(key, ()))))
    return pairings + [StepPairing([], list(tensors)) for _, tensors in sorted(right_groups.items())]


def _match_numbers(left: set[int], right: set[int], offset: int, noun: str, notes: list[str]) -> dict[int, int]:
    """Return the right side's number for each left step or rank that has one; add those of one side to `notes`."""
    matches = {number: number + offset for number in left if number + offset in right}
    if not matches and len(left) == len(right) == 1:
        matches = dict(zip(left, right, strict=True))
        notes.append(f"{noun} {min(left)} of the left was compared with {noun} {min(right)} of the right")
    if unmatched := left - set(matches):
        notes.append(f"only the left has {noun} {_list_numbers(unmatched)}; the right has {_list_numbers(right)}")
    if unmatched := right - set(matches.values()):
        notes.append(f"only the right has {noun} {_list_numbers(unmatched)}; the left has {_list_numbers(left)}")
    return matches


def _list_numbers(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


# By the rules file.


def match_by_rules(pairing: StepPairing, rules: Rules) -> None:
    """Pair tensors as the rules file says, and drop those that it ignores."""
    _drop_ignored(pairing, rules)
    right_tensors = {(tensor.op, tensor.call, *_get_slot(tensor)): tensor for tensor in pairing.right}
    paired: list[StoredTensor] = []
    missing = []
    for tensor in pairing.left:
        partner = rules.find_partner(tensor.op, tensor.call)
        if partner is None:
            continue
        op, call = partner
        right = right_tensors.get((op, call, *_get_slot(tensor)))
        if op == INSERTED:
            pairing.add_left_only(tensor, INSERTED, "the rules say that it has no original")
        elif right is None:
            missing.append(f"{tensor.tensor_index} -> {op}")
            pairing.add_left_only(tensor, op, f"the rules name {op}, but no such {tensor.role} was found on the right")
        else:
            pairing.add_match(tensor, right, "rules")
            paired.append(right)
        paired.append(tensor)
    pairing.drop(paired)
    if missing:
        pairing.notes.append(f"the rules name tensors that were not found on the right: {join_some(missing)}")


def _drop_ignored(pairing: StepPairing, rules: Rules) -> None:
    left = [tensor for tensor in pairing.left if rules.ignores(tensor.op, left=True)]
    right = [tensor for tensor in pairing.right if rules.ignores(tensor.op, left=False)]
    pairing.drop([*left, *right])
    if left or right:
        pairing.notes.append(f"left out by the rules: {len(left)} tensors of the left, {len(right)} of the right")


def _get_slot(tensor: StoredTensor) -> tuple[Role, str | int]:
    """Return the slot of a tensor within its operator: role and parameter name, or role and number."""
    return tensor.role, tensor.parameter or tensor.index


# By the graph.


def match_by_graph(pairing: StepPairing, graph: Graph, graph_right: Graph | None) -> None:
    """Pair tensors through the compiled graph, which names the original of each operator."""
    groups = fusion.group_nodes(graph)  # operators that compute the same originals
    golden = fusion.index_golden_outputs(pairing.right, graph, graph_right, groups)
    originals = fusion.OriginalFinder(graph, groups, golden)
    known = _find_nodes(pairing, graph)
    first_order: dict[str, int] = {}
    last_call: dict[str, int] = {}
    for tensor, node in known:
        first_order[node.name] = min(tensor.order, first_order.get(node.name, tensor.order))
        last_call[node.name] = max(tensor.call, last_call.get(node.name, 0))
    paired: list[StoredTensor] = []
    for tensor, node in known:
        pair = originals.pair(tensor, node, obstacle=originals.explain_uncompared(node, first_order))
        if tensor.call < last_call[node.name]:
            reason = "the operator was dumped again in this step; only its last dump is compared"
            pair = replace(pair, right=None, matched_by="none", layout=None, reason=reason)
        group = groups[node.name].number
        pairing.ordered_pairs.append(OrderedPair(pair, ("graph", group), (group, *make_sort_key(tensor))))
        paired += [tensor] if pair.right is None else [tensor, pair.right]
        if pair.reason.startswith("ambiguous"):
            pairing.add_note(pair.reason)
    pairing.drop(paired)


def _find_nodes(pairing: StepPairing, graph: Graph) -> list[tuple[StoredTensor, Node]]:
    """Return the dumped tensors whose operator is in the graph, each with its node."""
    by_name = fusion.group_by_file_name(graph)
    known, ambiguous = [], []
    for tensor in pairing.left:
        node = fusion.find_node(tensor, by_name)
        if isinstance(node, str):  # why there is no single node
            ambiguous.append(tensor)
            pairing.add_left_only(tensor, tensor.op, reason=node)
            pairing.add_note(node)
        elif node is not None:
            known.append((tensor, node))
    pairing.drop(ambiguous)
    if unknown := {tensor.op for tensor in pairing.left} - {tensor.op for tensor, _ in known}:
        pairing.notes.append(f"{len(unknown)} dumped operators are not in the graph: {join_some(sorted(unknown))}")
    return known


# By name.


def match_by_name(pairing: StepPairing, without_roles: bool) -> None:
    """Match exact names first, then names without wrappers and separators, then without a prefix that all names share.

    `without_roles`: finally match by name and call alone, since a plain folder does not tell outputs from parameters.
    """
    pairing.pair_by_key(lambda tensor: (tensor.op, tensor.call, *_get_slot(tensor)))
    prefixes = _find_common_prefixes(pairing)
    ambiguous = set(pairing.pair_by_key(partial(_make_normal_key, prefix="")))
    if names := sorted(
        {tensor.op for tensor in pairing.left + pairing.right if _make_normal_key(tensor, "") in ambiguous}
    ):
        pairing.notes.append(
            f"ambiguous: these names are not unique without separators and wrappers: {join_some(names)}"
        )
    for prefix in prefixes:
        pairing.pair_by_key(partial(_make_normal_key, prefix=prefix))
    if without_roles:
        pairing.pair_by_key(lambda tensor: (_make_normal_key(tensor, "")[0], tensor.call))


def _make_normal_key(tensor: StoredTensor, prefix: str) -> Key:
    """Return a tensor's normalised name without a prefix, its call, role and number (-1 for a parameter)."""
    name = f"{tensor.op}.{tensor.parameter}" if tensor.parameter else tensor.op
    return _normalise(name).removeprefix(prefix), tensor.call, tensor.role, -1 if tensor.parameter else tensor.index


def _normalise(name: str) -> str:
    return _UNDERSCORES.sub("_", "_".join(_split_name(name)))


def _split_name(name: str) -> list[str]:
    """Split a name at its separators, and remove the parts that wrappers such as torch.compile add."""
    parts = [part for part in _SEPARATORS.split(name) if part]
    # "module" is removed at the beginning only: an inner module of a network may have this name.
    while len(parts) > 1 and parts[0] in ("module", *WRAPPERS):
        parts = parts[1:]
    return [part for part in parts if part not in WRAPPERS]


def _find_common_prefixes(pairing: StepPairing) -> list[str]:
    """Return the first part that all names of a side share, such as model. or resnet_v1/; at most one for each side."""
    prefixes = []
    for tensors in (pairing.left, pairing.right):
        parts = [_split_name(op) for op in {tensor.op for tensor in tensors}]
        firsts = {path[0] for path in parts if len(path) > 1}
        if len(firsts) == 1 and len(parts) > 1 and all(len(path) > 1 for path in parts):
            prefixes.append(_normalise(firsts.pop()) + "_")
    return prefixes


# By structure.


def match_by_structure(pairing: StepPairing, is_ordered: bool) -> None:
    """Match operators without any matched tensor, by their structure and by the matched operators around them.

    `is_ordered`: both dumps record the order of execution.
    """
    matched = [(pair.left, pair.right) for pair, _, _ in pairing.ordered_pairs if pair.left and pair.right]
    orders = sorted({left.order for left, _ in matched})
    position_of_order = {order: position for position, order in enumerate(orders, 1)}
    left_calls = _group_unmatched_calls(pairing.left, [(left, position_of_order[left.order]) for left, _ in matched])
    right_calls = _group_unmatched_calls(
        pairing.right, [(right, position_of_order[left.order]) for left, right in matched]
    )
    if not can_align(len(left_calls), len(right_calls)):
        pairing.add_note(
            f"{len(left_calls):,} operators of the left and {len(right_calls):,} of the right have no counterpart by "
            "name; these are too many to pair them by structure"
        )
        return
    paired: list[StoredTensor] = []
    for match in align_operators(left_calls, right_calls, is_ordered):
        for left, right in _pair_slots(left_calls[match.left], right_calls[match.right]):
            pairing.add_match(left, right, "structure", match.confidence)
            paired += [left, right]
    pairing.drop(paired)


def _group_unmatched_calls(tensors: list[StoredTensor], anchors: list[tuple[StoredTensor, int]]) -> list[UnmatchedCall]:
    """Return the calls without a matched tensor in order of execution, each with the position of the last match before.

    Tensors with a fault are left out. `anchors`: matched tensors, each with the position of its left call among the
    matched ones, from 1. A call before all of them gets the position 0.
    """
    matched = {(tensor.op, tensor.call) for tensor, _ in anchors}
    known = sorted((tensor.order, position) for tensor, position in anchors)
    calls: dict[tuple[int, str, int], list[StoredTensor]] = defaultdict(list)
    for tensor in tensors:
        if (tensor.op, tensor.call) not in matched and not tensor.fault:
            calls[tensor.order, tensor.op, tensor.call].append(tensor)
    unmatched = []
    for (order, op, _), members in sorted(calls.items()):
        before = bisect_left(known, (order, 0))
        unmatched.append(UnmatchedCall(op, members[0].op_type, known[before - 1][1] if before else 0, members))
    return unmatched


def _pair_slots(left_call: UnmatchedCall, right_call: UnmatchedCall) -> Iterator[tuple[StoredTensor, StoredTensor]]:
    """Yield pairs of tensors of the same slot, then of the same role; their shapes agree in some order of axes."""
    left, right = list(left_call.tensors), list(right_call.tensors)
    for exact in (True, False):
        for tensor in list(left):
            partner = next((other for other in right if _is_same_slot(tensor, other, exact)), None)
            if partner is not None:
                left.remove(tensor)
                right.remove(partner)
                yield tensor, partner


def _is_same_slot(left: StoredTensor, right: StoredTensor, exact: bool) -> bool:
    if left.role != right.role or sorted(left.shape) != sorted(right.shape):
        return False
    return _get_slot(left) == _get_slot(right) if exact else bool(left.parameter) == bool(right.parameter)


# Tensors without a partner.


def add_unmatched(pairing: StepPairing, graph: Graph | None) -> None:
    """Add a one-sided pair with a reason for every tensor that is still unmatched."""
    groups = fusion.group_nodes(graph) if graph else {}
    nodes = graph.nodes.values() if graph else ()
    group_of = {fusion.flatten_name(name): groups[node.name] for node in nodes for name in node.stands_for}
    missing = "no counterpart was found on the right side"
    hint = "; it has no inputs, and a graph (--graph) names the outputs that feed each operator"
    right = [*pairing.right, *(pair.right for pair, _, _ in pairing.ordered_pairs if pair.right)]
    roles = {tensor.role for tensor in right}
    needs_graph = not graph and "output" in roles and "input" not in roles
    for tensor in pairing.left:
        pairing.add_left_only(tensor, tensor.op, missing + (hint if needs_graph and tensor.role == "input" else ""))
    order_of = _make_right_order(pairing)
    dumped = {pair.left.op for pair, _, _ in pairing.ordered_pairs if pair.left}
    for tensor in pairing.right:
        key: Key = ("right", tensor.order, tensor.op, tensor.call)
        sort_key = (order_of(tensor.order), tensor.order, *make_sort_key(tensor))
        if group := group_of.get(fusion.flatten_name(tensor.op)):
            key, sort_key = ("graph", group.number), (group.number, math.inf)  # after the left tensors of the group
        pairing.ordered_pairs.append(OrderedPair(_make_right_only_pair(tensor, group, dumped), key, sort_key))
    pairing.left, pairing.right = [], []


def _make_right_only_pair(tensor: StoredTensor, group: fusion.Group | None, dumped: set[str]) -> Pair:
    """Return the pair of a right tensor without a partner.

    `group`: the left operators that compute it, if there is a graph; `dumped`: the left operators with a tensor.
    """
    if group is None:
        left_op, reason = tensor.op, "no counterpart was found on the left side"
    elif fusion.is_fused_away(tensor, group):
        left_op, reason = INSERTED, f"fused into {group.left_op}, which has no tensor that is compared with it"
    elif dumped.isdisjoint(node.name for node in group.nodes):
        left_op, reason = group.left_op, f"{group.left_op} was not dumped on the left"
    else:
        left_op, reason = group.left_op, f"no dumped tensor of {group.left_op} was paired with it"
    return Pair(0, None, tensor, left_op, tensor.op, "none", reason=reason)


def _make_right_order(pairing: StepPairing) -> Callable[[int], float]:
    """Return a function from a right order to the first number of a sort key: just after the last match before it."""
    matches = [(pair.right, sort_key) for pair, _, sort_key in pairing.ordered_pairs if pair.left and pair.right]
    known = sorted((right.order, sort_key[0]) for right, sort_key in matches)

    def order_of(order: int) -> float:
        before = bisect_right(known, (order, math.inf))
        return known[before - 1][1] + 0.5 if before else -1.0

    return order_of


def number_groups(pairing: StepPairing, first: int) -> list[Pair]:
    """Return the pairs in order, with consecutive group numbers from `first`."""
    first_keys: dict[Key, tuple[float, ...]] = {}
    for _, group, sort_key in pairing.ordered_pairs:
        first_keys[group] = min(sort_key, first_keys.get(group, sort_key))
    pairing.ordered_pairs.sort(key=lambda entry: (first_keys[entry.group], str(entry.group), entry.sort_key))
    numbers: dict[Key, int] = {}
    for _, group, _ in pairing.ordered_pairs:
        numbers.setdefault(group, first + len(numbers))
    return [replace(pair, group=numbers[group]) for pair, group, _ in pairing.ordered_pairs]


def select_edges(
    left: StoredDump, right: StoredDump, graph: Graph | None, pairs: Iterable[Pair]
) -> Mapping[str, tuple[str, ...]]:
    """Return the graph's edges, else the left dump's, else the right dump's with the operators' names on the left."""
    if graph:
        return fusion.find_edges(graph, {pair.left.op for pair in pairs if pair.left})
    if left.edges or not right.edges:
        return left.edges
    names = {pair.right.op: pair.left.op for pair in pairs if pair.left and pair.right}
    return {
        names.get(op, op): tuple(names.get(producer, producer) for producer in producers)
        for op, producers in right.edges.items()
    }
