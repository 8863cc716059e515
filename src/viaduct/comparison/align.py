"""Which tensor of the left belongs to which of the right.

    alignment = align(left, right, graph=…, rules=…, graph_right=…)
    alignment.pairs     every tensor of either side in one pair at least, in order of execution
    alignment.notes     what a person should know: steps of other numbers, names that may mean two things
    alignment.edges     operator -> the operators that feed it, by the names the left tensors bear in the pairs

Steps are paired by number, then tensors by the rules file, the graph, their names, and what is left by structure. A
tensor without a partner is a pair with one side None, and `reason` says why: `*` where the compiler inserted it or
fused it away, its own name's partner where that is missing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from viaduct.comparison import fusion
from viaduct.comparison.graph import Graph, Node, read_graph
from viaduct.comparison.readers.listing import some
from viaduct.comparison.rules import INSERTED, Rules, read_rules
from viaduct.comparison.structure import Op, aligned
from viaduct.comparison.tensors import Matched, Pair, Role, Side, Stored

ROLES: tuple[Role, ...] = ("input", "parameter", "output", "grad_output", "grad_input", "gradient", "update")
PLACES = {role: place for place, role in enumerate(ROLES)}
ORDERLESS = ("folder", "tfdbg")  # nothing in them tells the order of execution
WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARTS = re.compile(r"[/.:\\\s]+")
_BLANKS = re.compile(r"_+")

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Alignment:
    pairs: list[Pair]
    notes: tuple[str, ...] = ()
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def matched(self) -> Counter[Matched]:
        return Counter(pair.matched for pair in self.pairs)


class Placed(NamedTuple):
    """A pair and where it comes among the others."""

    pair: Pair
    group: Key
    place: tuple[float, ...]


@dataclass
class Moment:
    """One step of one rank while its tensors find each other."""

    left: list[Stored]
    right: list[Stored]
    placed: list[Placed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def pair(self, left: Stored, right: Stored, matched: Matched, confidence: float = 1.0) -> None:
        pair = Pair(0, left, right, left.op, right.op, matched, confidence)
        self.placed.append(Placed(pair, ("op", left.order, left.op, left.call), place_of(left)))

    def keep(self, left: set[int], right: set[int]) -> None:
        """Without those that have found a partner, by identity."""
        self.left = [tensor for tensor in self.left if id(tensor) not in left]
        self.right = [tensor for tensor in self.right if id(tensor) not in right]

    def meet(self, key: Callable[[Stored], Key | None], matched: Matched = "name") -> list[Key]:
        """Pairs what bears the same key where it is the only one on either side; the keys that are not, come back."""
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
        self.keep(used_left, used_right)
        return unclear


def place_of(tensor: Stored) -> tuple[float, ...]:
    return (tensor.order, tensor.call, PLACES[tensor.role], tensor.index)


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
    """Every tensor of both sides in at least one pair. Files are read here where paths are given."""
    graph = read_graph(graph) if isinstance(graph, Path) else graph
    graph_right = read_graph(graph_right) if isinstance(graph_right, Path) else graph_right
    rules = read_rules(rules) if isinstance(rules, Path) else rules
    notes = [*(graph.notes if graph else ()), *(graph_right.notes if graph_right else ())]
    moments = paired_moments(left, right, rules.step_offset if rules else 0, notes)
    ordered = left.kind not in ORDERLESS and right.kind not in ORDERLESS
    pairs: list[Pair] = []
    for moment in moments:
        _find_partners(moment, graph, graph_right, rules, ordered, left.kind == "folder" or right.kind == "folder")
        pairs += numbered(moment, pairs[-1].group + 1 if pairs else 0)
        notes += [note for note in moment.notes if note not in notes]
    return Alignment(pairs, tuple(notes), edges(left, right, graph, pairs))


def _find_partners(
    moment: Moment, graph: Graph | None, graph_right: Graph | None, rules: Rules | None, ordered: bool, loose: bool
) -> None:
    if rules:
        by_rules(moment, rules)
    if graph:
        by_graph(moment, graph, graph_right)
    by_name(moment, loose)
    if not graph:
        by_structure(moment, ordered)
    without_partner(moment, graph)


# Steps and ranks.


def paired_moments(left: Side, right: Side, offset: int, notes: list[str]) -> list[Moment]:
    """Steps of the same number, ranks likewise; a single one on each side whatever its number."""
    ours, theirs = _moments(left), _moments(right)
    steps = _partners({step for step, _ in ours}, {step for step, _ in theirs}, offset, "step", notes)
    ranks = _partners({rank for _, rank in ours}, {rank for _, rank in theirs}, 0, "rank", notes)
    moments = []
    for (step, rank), tensors in sorted(ours.items()):
        key = (steps.get(step, -1), ranks.get(rank, -1))
        moments.append(Moment(list(tensors), list(theirs.pop(key, ()))))
    return moments + [Moment([], list(tensors)) for _, tensors in sorted(theirs.items())]


def _moments(side: Side) -> dict[tuple[int, int], list[Stored]]:
    found: dict[tuple[int, int], list[Stored]] = defaultdict(list)
    for tensor in side.tensors:
        found[tensor.step, tensor.rank].append(tensor)
    return found


def _partners(ours: set[int], theirs: set[int], offset: int, word: str, notes: list[str]) -> dict[int, int]:
    found = {number: number + offset for number in ours if number + offset in theirs}
    if not found and len(ours) == len(theirs) == 1:
        found = dict(zip(ours, theirs, strict=True))
        notes.append(f"{word} {min(ours)} of the left was compared with {word} {min(theirs)} of the right")
    if lost := sorted(ours - set(found)):
        notes.append(f"only the left has {word} {', '.join(map(str, lost))}; the right has {_listed(theirs)}")
    if lost := sorted(theirs - set(found.values())):
        notes.append(f"only the right has {word} {', '.join(map(str, lost))}; the left has {_listed(ours)}")
    return found


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


# By the rules file.


def by_rules(moment: Moment, rules: Rules) -> None:
    _ignore(moment, rules)
    theirs = {(tensor.op, tensor.call, *_slot(tensor)): tensor for tensor in moment.right}
    used_left, used_right, missing = set(), set(), []
    for tensor in moment.left:
        partner = rules.partner(tensor.op, tensor.call)
        if partner is None:
            continue
        right = theirs.get((*partner, *_slot(tensor)))
        if partner[0] == INSERTED:
            _alone(moment, tensor, INSERTED, "the rules say that it has no original")
        elif right is None:
            missing.append(f"{tensor.tensor_index} -> {partner[0]}")
            _alone(moment, tensor, partner[0], f"the rules name {partner[0]}, whose {tensor.role} is not there")
        else:
            moment.pair(tensor, right, "rules")
            used_right.add(id(right))
        used_left.add(id(tensor))
    moment.keep(used_left, used_right)
    if missing:
        moment.notes.append(f"the rules name tensors that the right does not have: {some(missing)}")


def _ignore(moment: Moment, rules: Rules) -> None:
    left = {id(tensor) for tensor in moment.left if rules.ignores(tensor.op, left=True)}
    right = {id(tensor) for tensor in moment.right if rules.ignores(tensor.op, left=False)}
    moment.keep(left, right)
    if left or right:
        moment.notes.append(f"left out by the rules: {len(left)} tensors of the left, {len(right)} of the right")


def _alone(moment: Moment, tensor: Stored, right_op: str, reason: str) -> None:
    pair = Pair(0, tensor, None, tensor.op, right_op, "none", reason=reason)
    moment.placed.append(Placed(pair, ("op", tensor.order, tensor.op, tensor.call), place_of(tensor)))


def _slot(tensor: Stored) -> tuple[Role, str | int]:
    """Which tensor of an operator: by its parameter's name, or by its number."""
    return tensor.role, tensor.parameter or tensor.index


# By the graph.


def by_graph(moment: Moment, graph: Graph, graph_right: Graph | None) -> None:
    groups = fusion.groups_of(graph)
    work = fusion.Fusion(graph, groups, fusion.truth_of(moment.right, graph, graph_right, groups))
    known = _nodes(moment, graph)
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
        moment.placed.append(Placed(pair, ("graph", group), (group, *place_of(tensor))))
        used |= {id(pair.right)} if pair.right else set()
        moment.notes += [pair.reason] if pair.reason.startswith("ambiguous") and pair.reason not in moment.notes else []
    moment.keep({id(tensor) for tensor, _ in known}, used)


def _nodes(moment: Moment, graph: Graph) -> list[tuple[Stored, Node]]:
    """The dumped tensors whose operator the graph knows; the others stay, and go by name."""
    by_name = fusion.nodes_by_file_name(graph)
    known, unclear = [], set()
    for tensor in moment.left:
        node = fusion.node_of(tensor, by_name)
        if isinstance(node, str):
            unclear.add(id(tensor))
            _alone(moment, tensor, tensor.op, node)
            moment.notes += [node] if node not in moment.notes else []
        elif node is not None:
            known.append((tensor, node))
    moment.keep(unclear, set())
    if strangers := {tensor.op for tensor in moment.left} - {tensor.op for tensor, _ in known}:
        moment.notes.append(f"{len(strangers)} dumped operators are not in the graph: {some(sorted(strangers))}")
    return known


# By name.


def by_name(moment: Moment, loose: bool) -> None:
    """Exactly; then without wrappers and whatever separates the parts; then without a prefix that a whole side has."""
    moment.meet(lambda tensor: (tensor.op, tensor.call, *_slot(tensor)))
    prefixes = _common_prefixes(moment)
    unclear = set(moment.meet(lambda tensor: _normal_key(tensor, "")))
    if names := sorted({tensor.op for tensor in moment.left + moment.right if _normal_key(tensor, "") in unclear}):
        moment.notes.append(f"ambiguous: these names cannot be told apart in file names: {some(names)}")
    for cut in prefixes:
        moment.meet(partial(_normal_key, cut=cut))
    if loose:  # a plain folder does not say whether a tensor is an output or a parameter
        moment.meet(lambda tensor: (_normal(_full(tensor), ""), tensor.call))


def _normal_key(tensor: Stored, cut: str) -> Key:
    role, slot = _slot(tensor)
    return _normal(_full(tensor), cut), tensor.call, role, tensor.index if slot == tensor.index else -1


def _full(tensor: Stored) -> str:
    return f"{tensor.op}.{tensor.parameter}" if tensor.parameter else tensor.op


def _normal(name: str, cut: str) -> str:
    joined = _BLANKS.sub("_", "_".join(_parts(name)))
    return joined.removeprefix(cut) if cut else joined


def _parts(name: str) -> list[str]:
    """Of a path, without what data parallel and compilers wrap around modules."""
    parts = [part for part in _PARTS.split(name) if part]
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return [part for part in parts if part not in WRAPPERS[1:]]


def _common_prefixes(moment: Moment) -> list[str]:
    """A first part that all names of a side share: model. or resnet_v1/."""
    found = []
    for tensors in (moment.left, moment.right):
        parts = [_parts(op) for op in {tensor.op for tensor in tensors}]
        firsts = {path[0] for path in parts if len(path) > 1}
        if len(firsts) == 1 and len(parts) > 1 and all(len(path) > 1 for path in parts):
            found.append(_normal(firsts.pop(), "") + "_")
    return found


# By structure.


def by_structure(moment: Moment, ordered: bool) -> None:
    """Only operators that have no tensor with a partner yet; those that have say where the others stand."""
    anchors = [(pair.left, pair.right) for pair, _, _ in moment.placed if pair.left and pair.right]
    places = {order: place for place, order in enumerate(sorted({left.order for left, _ in anchors}), 1)}
    ours = _ops(moment.left, [(left, places[left.order]) for left, _ in anchors])
    theirs = _ops(moment.right, [(right, places[left.order]) for left, right in anchors])
    used_left, used_right = set(), set()
    for match in aligned(ours, theirs, ordered):
        for left, right in _same_slots(ours[match.left], theirs[match.right]):
            moment.pair(left, right, "structure", match.confidence)
            used_left.add(id(left))
            used_right.add(id(right))
    moment.keep(used_left, used_right)


def _ops(tensors: list[Stored], anchors: list[tuple[Stored, int]]) -> list[Op]:
    """Calls without a partner in order, each with the place of the last before it that has one."""
    done = {(tensor.op, tensor.call) for tensor, _ in anchors}
    known = sorted((tensor.order, place) for tensor, place in anchors)
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
    """Tensor by tensor: the same slot, or the same place among those of its role, if they are of one size."""
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


def without_partner(moment: Moment, graph: Graph | None) -> None:
    groups = fusion.groups_of(graph) if graph else {}
    away = fusion.fused_away(graph, groups) if graph else {}
    nothing = "the right side has nothing of this name or structure"
    hint = "" if _has_inputs(moment) else "; it has outputs only, and a graph (--graph) would say whose output this is"
    for tensor in moment.left:
        _alone(moment, tensor, tensor.op, nothing + hint * (tensor.role == "input"))
    places = _right_places(moment)
    for tensor in moment.right:
        group = away.get(fusion.flat(tensor.op))
        key: Key = ("graph", group.number) if group else ("right", tensor.order, tensor.op, tensor.call)
        place = (group.number, float("inf")) if group else (places(tensor.order), tensor.order, *place_of(tensor))
        moment.placed.append(Placed(_right_alone(tensor, group), key, place))
    moment.left, moment.right = [], []


def _has_inputs(moment: Moment) -> bool:
    paired = (pair.right for pair, _, _ in moment.placed if pair.right)
    return any(tensor.role == "input" for tensor in (*moment.right, *paired))


def _right_alone(tensor: Stored, group: fusion.Group | None) -> Pair:
    if group is None:
        reason = "the left side has nothing of this name or structure"
        return Pair(0, None, tensor, tensor.op, tensor.op, "none", reason=reason)
    if len(group.originals) > 1 and any(node.outputs for node in group.nodes):
        reason = f"fused into {group.left_op}; the accelerator has no tensor of its own for it"
        return Pair(0, None, tensor, INSERTED, tensor.op, "none", reason=reason)
    return Pair(0, None, tensor, group.left_op, tensor.op, "none", reason=f"{group.left_op} was not dumped on the left")


def _right_places(moment: Moment) -> Callable[[int], float]:
    """Where a tensor of the right alone comes in the left's order: behind the last before it that has a partner."""
    known = sorted((pair.right.order, place[0]) for pair, _, place in moment.placed if pair.left and pair.right)

    def place(order: int) -> float:
        before = bisect_right(known, (order, float("inf")))
        return known[before - 1][1] + 0.5 if before else -1.0

    return place


def numbered(moment: Moment, first: int) -> list[Pair]:
    """In order, with the groups numbered as they come."""
    places: dict[Key, tuple[float, ...]] = {}
    for _, group, place in moment.placed:
        places[group] = min(place, places.get(group, place))
    moment.placed.sort(key=lambda placed: (places[placed.group], str(placed.group), placed.place))
    numbers: dict[Key, int] = {}
    return [replace(pair, group=first + numbers.setdefault(group, len(numbers))) for pair, group, _ in moment.placed]


def edges(left: Side, right: Side, graph: Graph | None, pairs: Iterable[Pair]) -> Mapping[str, tuple[str, ...]]:
    """The graph's, else the left's own, else the right's in the left's names."""
    if graph:
        return fusion.edges_of(graph, {pair.left.op for pair in pairs if pair.left})
    if left.edges or not right.edges:
        return left.edges
    names = {pair.right.op: pair.left.op for pair in pairs if pair.left and pair.right}
    return {
        names.get(op, op): tuple(names.get(feeder, feeder) for feeder in feeders)
        for op, feeders in right.edges.items()
    }  # fmt: skip
