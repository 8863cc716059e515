"""Alignment: pairs each tensor of the left dump with its counterpart on the right.

    alignment = align(left, right, graph=…, rules=…, graph_right=…)
    alignment.pairs     every tensor that the rules do not ignore, in one pair at least, in order of execution
    alignment.notes     notes for the user: steps of other numbers, names that may mean two things, ignored tensors
    alignment.edges     operator -> the operators that feed it, by the names of the left tensors in the pairs

Steps are paired by number, then tensors by the rules file, the graph, their names, and without a graph by structure. A
tensor without a partner is a pair with one side None, and `reason` says why. The missing side is named `*` if the
compiler inserted the operator or fused it away.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from viaduct.comparison import fusion
from viaduct.comparison.graph import Graph, Node, read_graph
from viaduct.comparison.readers.listing import join_some
from viaduct.comparison.rules import INSERTED, Rules, read_rules
from viaduct.comparison.structure import Op, align_operators
from viaduct.comparison.tensors import Matched, Pair, Role, Side, Stored

ROLES: tuple[Role, ...] = ("input", "parameter", "output", "grad_output", "grad_input", "gradient", "update")
ROLE_ORDER = {role: number for number, role in enumerate(ROLES)}
ORDERLESS = ("folder", "tfdbg")  # nothing in them tells the order of execution
WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARTS = re.compile(r"[/.:\\\s]+")
_BLANKS = re.compile(r"_+")

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Alignment:
    """Pairs of tensors, with notes for the user and the edges of the operator graph."""

    pairs: list[Pair]
    notes: tuple[str, ...] = ()
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class OrderedPair(NamedTuple):
    """A pair with the keys that order it among the others."""

    pair: Pair
    group: Key
    sort_key: tuple[float, ...]


@dataclass
class Moment:
    """One step of one rank while its tensors find each other."""

    left: list[Stored]
    right: list[Stored]
    ordered_pairs: list[OrderedPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def pair(self, left: Stored, right: Stored, matched: Matched, confidence: float = 1.0) -> None:
        """Add a pair of matched tensors."""
        pair = Pair(0, left, right, left.op, right.op, matched, confidence)
        self.ordered_pairs.append(OrderedPair(pair, ("op", left.order, left.op, left.call), sort_key_of(left)))

    def drop_matched(self, left: set[int], right: set[int]) -> None:
        """Remove the tensors that have found a partner; they are given by identity."""
        self.left = [tensor for tensor in self.left if id(tensor) not in left]
        self.right = [tensor for tensor in self.right if id(tensor) not in right]

    def pair_by_key(self, key: Callable[[Stored], Key | None], matched: Matched = "name") -> list[Key]:
        """Pair tensors whose key is unique on both sides. Return the keys that are ambiguous."""
        ours, theirs = _by_key(self.left, key), _by_key(self.right, key)
        used_left, used_right = set(), set()
        unclear = []
        for name, tensors in ours.items():
            others = theirs.get(name, [])
            if len(tensors) == len(others) == 1:
                self.pair(tensors[0], others[0], matched)
                used_left.add(id(tensors[0]))
                used_right.add(id(others[0]))
            elif others:
                unclear.append(name)
        self.drop_matched(used_left, used_right)
        return unclear


def sort_key_of(tensor: Stored) -> tuple[float, ...]:
    """Return the position of a tensor in execution order."""
    return (tensor.order, tensor.call, ROLE_ORDER[tensor.role], tensor.index)


def _by_key(tensors: Iterable[Stored], key: Callable[[Stored], Key | None]) -> dict[Key, list[Stored]]:
    found: dict[Key, list[Stored]] = defaultdict(list)
    for tensor in tensors:
        if (name := key(tensor)) is not None:
            found[name].append(tensor)
    return found


def align(
    left: Side,
    right: Side,
    graph: Graph | Path | None = None,
    rules: Rules | Path | None = None,
    graph_right: Graph | Path | None = None,
) -> Alignment:
    """Pair the tensors of both sides; each that the rules do not ignore is in at least one pair.

    Graph and rules may be paths or objects.
    """
    graph = read_graph(graph) if isinstance(graph, Path) else graph
    graph_right = read_graph(graph_right) if isinstance(graph_right, Path) else graph_right
    rules = read_rules(rules) if isinstance(rules, Path) else rules
    notes = [*(graph.notes if graph else ()), *(graph_right.notes if graph_right else ())]
    moments = pair_moments(left, right, rules.step_offset if rules else 0, notes)
    ordered = left.kind not in ORDERLESS and right.kind not in ORDERLESS
    pairs: list[Pair] = []
    for moment in moments:
        _find_partners(moment, graph, graph_right, rules, ordered, left.kind == "folder" or right.kind == "folder")
        pairs += number_groups(moment, pairs[-1].group + 1 if pairs else 0)
        notes += [note for note in moment.notes if note not in notes]
    return Alignment(pairs, tuple(notes), select_edges(left, right, graph, pairs))


def _find_partners(
    moment: Moment, graph: Graph | None, graph_right: Graph | None, rules: Rules | None, ordered: bool, loose: bool
) -> None:
    if rules:
        match_by_rules(moment, rules)
    if graph:
        match_by_graph(moment, graph, graph_right)
    match_by_name(moment, loose)
    if not graph:
        match_by_structure(moment, ordered)
    add_unmatched(moment, graph)


# Steps and ranks.


def pair_moments(left: Side, right: Side, offset: int, notes: list[str]) -> list[Moment]:
    """Match steps and ranks by number; a single one on each side is matched whatever its number."""
    ours, theirs = _group_by_step(left), _group_by_step(right)
    steps = _partners({step for step, _ in ours}, {step for step, _ in theirs}, offset, "step", notes)
    ranks = _partners({rank for _, rank in ours}, {rank for _, rank in theirs}, 0, "rank", notes)
    moments = []
    for (step, rank), tensors in sorted(ours.items()):
        key = (steps.get(step, -1), ranks.get(rank, -1))
        moments.append(Moment(list(tensors), list(theirs.pop(key, ()))))
    return moments + [Moment([], list(tensors)) for _, tensors in sorted(theirs.items())]


def _group_by_step(side: Side) -> dict[tuple[int, int], list[Stored]]:
    found: dict[tuple[int, int], list[Stored]] = defaultdict(list)
    for tensor in side.tensors:
        found[tensor.step, tensor.rank].append(tensor)
    return found


def _partners(ours: set[int], theirs: set[int], offset: int, noun: str, notes: list[str]) -> dict[int, int]:
    found = {number: number + offset for number in ours if number + offset in theirs}
    if not found and len(ours) == len(theirs) == 1:
        found = dict(zip(ours, theirs, strict=True))
        notes.append(f"{noun} {min(ours)} of the left was compared with {noun} {min(theirs)} of the right")
    if lost := sorted(ours - set(found)):
        notes.append(f"only the left has {noun} {', '.join(map(str, lost))}; the right has {_list_numbers(theirs)}")
    if lost := sorted(theirs - set(found.values())):
        notes.append(f"only the right has {noun} {', '.join(map(str, lost))}; the left has {_list_numbers(ours)}")
    return found


def _list_numbers(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


# By the rules file.


def match_by_rules(moment: Moment, rules: Rules) -> None:
    """Pair tensors as the rules file says, and drop those that it ignores."""
    _ignore(moment, rules)
    theirs = {(tensor.op, tensor.call, *_slot(tensor)): tensor for tensor in moment.right}
    used_left, used_right, missing = set(), set(), []
    for tensor in moment.left:
        partner = rules.find_partner(tensor.op, tensor.call)
        if partner is None:
            continue
        right = theirs.get((*partner, *_slot(tensor)))
        if partner[0] == INSERTED:
            _add_unmatched(moment, tensor, INSERTED, "the rules say that it has no original")
        elif right is None:
            missing.append(f"{tensor.tensor_index} -> {partner[0]}")
            _add_unmatched(moment, tensor, partner[0], f"the rules name {partner[0]}, whose {tensor.role} is not there")
        else:
            moment.pair(tensor, right, "rules")
            used_right.add(id(right))
        used_left.add(id(tensor))
    moment.drop_matched(used_left, used_right)
    if missing:
        moment.notes.append(f"the rules name tensors that the right does not have: {join_some(missing)}")


def _ignore(moment: Moment, rules: Rules) -> None:
    left = {id(tensor) for tensor in moment.left if rules.ignores(tensor.op, left=True)}
    right = {id(tensor) for tensor in moment.right if rules.ignores(tensor.op, left=False)}
    moment.drop_matched(left, right)
    if left or right:
        moment.notes.append(f"left out by the rules: {len(left)} tensors of the left, {len(right)} of the right")


def _add_unmatched(moment: Moment, tensor: Stored, right_op: str, reason: str) -> None:
    pair = Pair(0, tensor, None, tensor.op, right_op, "none", reason=reason)
    moment.ordered_pairs.append(OrderedPair(pair, ("op", tensor.order, tensor.op, tensor.call), sort_key_of(tensor)))


def _slot(tensor: Stored) -> tuple[Role, str | int]:
    """Return the slot of a tensor within its operator: role and parameter name, or role and number."""
    return tensor.role, tensor.parameter or tensor.index


# By the graph.


def match_by_graph(moment: Moment, graph: Graph, graph_right: Graph | None) -> None:
    """Pair tensors through the compiled graph, which names the original of each operator."""
    groups = fusion.group_nodes(graph)
    work = fusion.Fusion(graph, groups, fusion.index_truth(moment.right, graph, graph_right, groups))
    known = _find_nodes(moment, graph)
    dumped: dict[str, int] = {}
    last: dict[str, int] = {}
    for tensor, node in known:
        dumped[node.name] = min(tensor.order, dumped.get(node.name, tensor.order))
        last[node.name] = max(tensor.call, last.get(node.name, 0))
    used = set()
    for tensor, node in known:
        inner = work.inner_reason(node, dumped)
        if tensor.call < last[node.name]:
            inner = "a later dump of the same operator in this step was compared"
        pair = work.pair(tensor, node, inner)
        group = groups[node.name].number
        moment.ordered_pairs.append(OrderedPair(pair, ("graph", group), (group, *sort_key_of(tensor))))
        used |= {id(pair.right)} if pair.right else set()
        moment.notes += [pair.reason] if pair.reason.startswith("ambiguous") and pair.reason not in moment.notes else []
    moment.drop_matched({id(tensor) for tensor, _ in known}, used)


def _find_nodes(moment: Moment, graph: Graph) -> list[tuple[Stored, Node]]:
    """Return the dumped tensors whose operator the graph knows; the others are matched by name later."""
    by_name = fusion.nodes_by_file_name(graph)
    known, unclear = [], set()
    for tensor in moment.left:
        node = fusion.find_node(tensor, by_name)
        if isinstance(node, str):
            unclear.add(id(tensor))
            _add_unmatched(moment, tensor, tensor.op, node)
            moment.notes += [node] if node not in moment.notes else []
        elif node is not None:
            known.append((tensor, node))
    moment.drop_matched(unclear, set())
    if strangers := {tensor.op for tensor in moment.left} - {tensor.op for tensor, _ in known}:
        moment.notes.append(f"{len(strangers)} dumped operators are not in the graph: {join_some(sorted(strangers))}")
    return known


# By name.


def match_by_name(moment: Moment, loose: bool) -> None:
    """Match exact names first, then names without wrappers and separators, then without a common prefix."""
    moment.pair_by_key(lambda tensor: (tensor.op, tensor.call, *_slot(tensor)))
    prefixes = _common_prefixes(moment)
    unclear = set(moment.pair_by_key(lambda tensor: _normal_key(tensor, "")))
    if names := sorted({tensor.op for tensor in moment.left + moment.right if _normal_key(tensor, "") in unclear}):
        moment.notes.append(f"ambiguous: these names are the same in file names: {join_some(names)}")
    for cut in prefixes:
        moment.pair_by_key(partial(_normal_key, cut=cut))
    if loose:  # a plain folder does not say whether a tensor is an output or a parameter
        moment.pair_by_key(lambda tensor: (_normal(_full(tensor), ""), tensor.call))


def _normal_key(tensor: Stored, cut: str) -> Key:
    role, slot = _slot(tensor)
    return _normal(_full(tensor), cut), tensor.call, role, tensor.index if slot == tensor.index else -1


def _full(tensor: Stored) -> str:
    return f"{tensor.op}.{tensor.parameter}" if tensor.parameter else tensor.op


def _normal(name: str, cut: str) -> str:
    joined = _BLANKS.sub("_", "_".join(_parts(name)))
    return joined.removeprefix(cut) if cut else joined


def _parts(name: str) -> list[str]:
    """Split a path into parts, without those that data parallel and compilers add."""
    parts = [part for part in _PARTS.split(name) if part]
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return [part for part in parts if part not in WRAPPERS[1:]]


def _common_prefixes(moment: Moment) -> list[str]:
    """Return a first part that all names of a side share, such as model. or resnet_v1/."""
    found = []
    for tensors in (moment.left, moment.right):
        parts = [_parts(op) for op in {tensor.op for tensor in tensors}]
        firsts = {path[0] for path in parts if len(path) > 1}
        if len(firsts) == 1 and len(parts) > 1 and all(len(path) > 1 for path in parts):
            found.append(_normal(firsts.pop(), "") + "_")
    return found


# By structure.


def match_by_structure(moment: Moment, ordered: bool) -> None:
    """Match operators none of whose tensors is matched, by their structure and by the matched operators around them."""
    anchors = [(pair.left, pair.right) for pair, _, _ in moment.ordered_pairs if pair.left and pair.right]
    rank_of_order = {order: rank for rank, order in enumerate(sorted({left.order for left, _ in anchors}), 1)}
    ours = _group_unmatched_calls(moment.left, [(left, rank_of_order[left.order]) for left, _ in anchors])
    theirs = _group_unmatched_calls(moment.right, [(right, rank_of_order[left.order]) for left, right in anchors])
    used_left, used_right = set(), set()
    for match in align_operators(ours, theirs, ordered):
        for left, right in _same_slots(ours[match.left], theirs[match.right]):
            moment.pair(left, right, "structure", match.confidence)
            used_left.add(id(left))
            used_right.add(id(right))
    moment.drop_matched(used_left, used_right)


def _group_unmatched_calls(tensors: list[Stored], anchors: list[tuple[Stored, int]]) -> list[Op]:
    """Return unmatched calls in order, each with the rank of the last matched call before it."""
    done = {(tensor.op, tensor.call) for tensor, _ in anchors}
    known = sorted((tensor.order, rank) for tensor, rank in anchors)
    calls: dict[tuple[int, str, int], list[Stored]] = defaultdict(list)
    for tensor in tensors:
        if (tensor.op, tensor.call) not in done and not tensor.fault:
            calls[tensor.order, tensor.op, tensor.call].append(tensor)
    made = []
    for (order, op, _), held in sorted(calls.items()):
        before = bisect_left(known, (order, 0))
        made.append(Op(op, held[0].op_type, known[before - 1][1] if before else 0, held))
    return made


def _same_slots(ours: Op, theirs: Op) -> Iterator[tuple[Stored, Stored]]:
    """Yield tensors in the same slot, or at the same position of their role, if their sizes agree."""
    waiting, free = list(ours.tensors), list(theirs.tensors)
    for exact in (True, False):
        for tensor in list(waiting):
            partner = next((other for other in free if _same_slot(tensor, other, exact)), None)
            if partner is not None:
                free.remove(partner)
                waiting.remove(tensor)
                yield tensor, partner


def _same_slot(ours: Stored, theirs: Stored, exact: bool) -> bool:
    if ours.role != theirs.role or sorted(ours.shape) != sorted(theirs.shape):
        return False
    return _slot(ours) == _slot(theirs) if exact else bool(ours.parameter) == bool(theirs.parameter)


# What is left.


def add_unmatched(moment: Moment, graph: Graph | None) -> None:
    """Add a one-sided pair, with its reason, for every tensor that is still unmatched."""
    groups = fusion.group_nodes(graph) if graph else {}
    away = fusion.map_originals(graph, groups) if graph else {}
    nothing = "the right side has nothing of this name or structure"
    hint = "" if _has_inputs(moment) else "; it has outputs only, and a graph (--graph) would say whose output this is"
    for tensor in moment.left:
        _add_unmatched(moment, tensor, tensor.op, nothing + hint * (tensor.role == "input"))
    order_of = _order_right_only(moment)
    for tensor in moment.right:
        group = away.get(fusion.flatten_name(tensor.op))
        key: Key = ("graph", group.number) if group else ("right", tensor.order, tensor.op, tensor.call)
        sort_key = (
            (group.number, float("inf")) if group else (order_of(tensor.order), tensor.order, *sort_key_of(tensor))
        )
        moment.ordered_pairs.append(OrderedPair(_make_right_only_pair(tensor, group), key, sort_key))
    moment.left, moment.right = [], []


def _has_inputs(moment: Moment) -> bool:
    paired = (pair.right for pair, _, _ in moment.ordered_pairs if pair.right)
    return any(tensor.role == "input" for tensor in (*moment.right, *paired))


def _make_right_only_pair(tensor: Stored, group: fusion.Group | None) -> Pair:
    if group is None:
        reason = "the left side has nothing of this name or structure"
        return Pair(0, None, tensor, tensor.op, tensor.op, "none", reason=reason)
    if len(group.originals) > 1 and any(node.outputs for node in group.nodes):
        reason = f"fused into {group.left_op}; the accelerator has no tensor of its own for it"
        return Pair(0, None, tensor, INSERTED, tensor.op, "none", reason=reason)
    return Pair(0, None, tensor, group.left_op, tensor.op, "none", reason=f"{group.left_op} was not dumped on the left")


def _order_right_only(moment: Moment) -> Callable[[int], float]:
    """Return a function that places a right-only tensor after the last matched one before it."""
    known = sorted(
        (pair.right.order, order_of[0]) for pair, _, order_of in moment.ordered_pairs if pair.left and pair.right
    )

    def order_of(order: int) -> float:
        before = bisect_right(known, (order, float("inf")))
        return known[before - 1][1] + 0.5 if before else -1.0

    return order_of


def number_groups(moment: Moment, first: int) -> list[Pair]:
    """Return the pairs in order, with consecutive group numbers from `first`."""
    first_keys: dict[Key, tuple[float, ...]] = {}
    for _, group, sort_key in moment.ordered_pairs:
        first_keys[group] = min(sort_key, first_keys.get(group, sort_key))
    moment.ordered_pairs.sort(key=lambda placed: (first_keys[placed.group], str(placed.group), placed.sort_key))
    numbers: dict[Key, int] = {}
    return [
        replace(pair, group=first + numbers.setdefault(group, len(numbers))) for pair, group, _ in moment.ordered_pairs
    ]


def select_edges(left: Side, right: Side, graph: Graph | None, pairs: Iterable[Pair]) -> Mapping[str, tuple[str, ...]]:
    """Return the graph's edges, else the left dump's, else the right's under the left's names."""
    if graph:
        return fusion.find_edges(graph, {pair.left.op for pair in pairs if pair.left})
    if left.edges or not right.edges:
        return left.edges
    names = {pair.right.op: pair.left.op for pair in pairs if pair.left and pair.right}
    return {
        names.get(op, op): tuple(names.get(feeder, feeder) for feeder in feeders)
        for op, feeders in right.edges.items()
    }  # fmt: skip
