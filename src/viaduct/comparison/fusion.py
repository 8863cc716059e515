"""Originals of the tensors of a compiled graph: the tensor of the original network that each one should equal.

The left side ran the compiled graph; the right (golden) side ran the original network, or another compiled graph of it.
A compiled operator may compute several original ones (fusion; L1 fusion is a kind of its own), or a part of one
(split). The accelerator's own tool has the same rules:

1. Operators that share an L1 fusion number or the list of their original names are one group.
2. Not every operator of a group is compared. Of a split operator, the parts whose outputs name no original are not; of
   an L1 group, only the first and the last dumped operator are.
3. Output k equals the original tensor that its description in the graph names.
4. Input k equals the original of the output that feeds it. Cast and TransData are skipped, also for their own outputs.
5. An operator that was only renamed has its original's outputs.
6. Layouts are taken from the graph, unless the file's shape shows that NCHW was stored as NHWC or the reverse.
7. If the right side has a graph too, each original is replaced by the operator of that graph that computes it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from viaduct.comparison.graph import Graph, Node, Output
from viaduct.comparison.records import INSERTED, Layout, Pair, StoredTensor

CONVERSIONS = ("Cast", "TransData")  # types of operators that convert a tensor and compute nothing
_FLAT = re.compile(r"[/\\.:\s]")
# Layout and order of its axes in a transposition -> the resulting layout.
TRANSPOSITIONS = {("NCHW", (0, 2, 3, 1)): "NHWC", ("NHWC", (0, 3, 1, 2)): "NCHW"}


def flatten_name(name: str) -> str:
    """Return an operator's name as in dump files: separators become _."""
    return _FLAT.sub("_", name)


class OriginalTensor(NamedTuple):
    """A tensor of the original network, as the graph names it."""

    op: str
    output: int
    layout: str  # "" if the graph does not say
    shape: tuple[int, ...]  # () if the graph does not say


class Group(NamedTuple):
    """Compiled operators that together compute the same original operators."""

    number: int
    nodes: tuple[Node, ...]

    @property
    def originals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.stands_for))

    @property
    def left_op(self) -> str:
        return ",".join(node.name for node in self.nodes)

    @property
    def right_op(self) -> str:
        """Return the names of the originals joined by commas, or *."""
        return ",".join(self.originals) or INSERTED


def group_nodes(graph: Graph) -> dict[str, Group]:
    """Return the group of each operator, numbered in order of execution (rule 1)."""
    members: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for node in graph.nodes.values():
        members[_make_group_key(node)].append(node)
    groups = [Group(number, tuple(nodes)) for number, nodes in enumerate(members.values())]
    return {node.name: group for group in groups for node in group.nodes}


def _make_group_key(node: Node) -> tuple[str, ...]:
    if node.l1_group:
        return ("l1", node.l1_group)
    return ("inserted", node.name) if node.is_inserted else node.stands_for


@dataclass
class GoldenOutputs:
    """Outputs of the right (golden) side by name, and what tells apart operators with one flattened name."""

    tensors: Mapping[tuple[str, int], StoredTensor]  # by flattened name and output
    exact: Mapping[tuple[str, int], StoredTensor]  # by name and output, if the dump has unflattened names
    names: Mapping[str, set[str]]  # flattened name -> the original names that are written so
    shapes: Mapping[tuple[str, int], tuple[int, ...]]  # original name and output -> its shape in the graph
    # By rule 7: operator and output of the original network -> those of the right side's graph.
    translated: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict)

    def find(self, original: OriginalTensor) -> StoredTensor | str:
        """Return the right side's tensor, or the reason why there is none."""
        name, index = self.translated.get((original.op, original.output), (original.op, original.output))
        if (name, index) in self.exact:
            return self.exact[name, index]
        tensor = self.tensors.get((flatten_name(name), index))
        if tensor is None:
            return f"no output {name}:{index} was found on the right side"
        rivals = self.names.get(flatten_name(name), {name})
        if len(rivals) < 2 or self._fits_only(name, index, rivals, tensor):
            return tensor
        listed = " and ".join(sorted(rivals)[:4])
        written = f"{listed} are all written as {flatten_name(name)} in file names"
        return f"ambiguous: {written}; it is not known which of them this tensor is"

    def _fits_only(self, name: str, index: int, rivals: set[str], tensor: StoredTensor) -> bool:
        """Return True if, of the operators with this flattened name, only `name` can have the tensor's shape."""
        shapes = {rival: self.shapes.get((rival, index)) for rival in rivals}
        return [name] == [
            rival for rival, shape in shapes.items() if shape is None or sorted(shape) == sorted(tensor.shape)
        ]


def index_golden_outputs(
    tensors: Iterable[StoredTensor], graph: Graph, graph_right: Graph | None, groups: Mapping[str, Group]
) -> GoldenOutputs:
    """Index the right side's outputs (of each operator's first call) by name, with the graph's names and shapes."""
    outputs = [tensor for tensor in tensors if tensor.role == "output" and tensor.call == 0]
    names: dict[str, set[str]] = defaultdict(set)
    shapes: dict[tuple[str, int], tuple[int, ...]] = {}
    for node in graph.nodes.values():
        for name in (*node.stands_for, *(output.origin for output in node.outputs if output.origin)):
            names[flatten_name(name)].add(name)
        for index in range(len(node.outputs)):
            original = read_original(node, index, groups[node.name])
            if original and original.shape:
                shapes[original.op, original.output] = original.shape
    return GoldenOutputs(
        {(flatten_name(tensor.op), tensor.index): tensor for tensor in outputs},
        {(tensor.op, tensor.index): tensor for tensor in outputs if flatten_name(tensor.op) != tensor.op},
        names,
        shapes,
        _find_translations(graph_right) if graph_right else {},
    )


def is_fused_away(tensor: StoredTensor, group: Group) -> bool:
    """Return True if an unpaired original tensor lies within its fused group: no output of the group should equal it.

    In an L1 group every unpaired tensor counts as fused away, since only the first and last operator are compared.
    """
    outputs = [(node, index) for node in group.nodes for index in range(len(node.outputs))]
    if len(group.originals) < 2 or not outputs:
        return False
    originals = [original for node, index in outputs if (original := read_original(node, index, group))]
    slots = {(flatten_name(original.op), original.output) for original in originals}
    is_original = tensor.role == "output" and (flatten_name(tensor.op), tensor.index) in slots
    return group.nodes[0].l1_group != "" or not is_original


def _find_translations(graph: Graph) -> dict[tuple[str, int], tuple[str, int]]:
    """Return, for each original tensor, the operator and output of this graph that compute it."""
    groups = group_nodes(graph)
    translations: dict[tuple[str, int], tuple[str, int]] = {}
    for node in graph.nodes.values():
        for index in range(max(1, len(node.outputs))):
            original = read_original(node, index, groups[node.name])
            if original and node.type not in CONVERSIONS:
                translations.setdefault((original.op, original.output), (node.name, index))
    return translations


def read_original(node: Node, index: int, group: Group) -> OriginalTensor | None:
    """Return the original of output `index` of an operator by its own description (rules 3 and 5); None without one."""
    # Without an original in the description, an operator that kept its name or was only renamed equals its original.
    renamed = len(group.nodes) == 1 and not node.l1_group and len(node.stands_for) == 1
    default = node.stands_for[0] if node.originals is None or renamed else ""
    desc = node.outputs[index] if index < len(node.outputs) else Output()
    if not (desc.origin or default):
        return None
    origin_index = index if desc.origin_index is None else desc.origin_index
    return OriginalTensor(desc.origin or default, origin_index, desc.origin_layout, desc.origin_shape)


@dataclass
class OriginalFinder:
    """Finds the originals of one graph's tensors among the right side's tensors. `groups`: by operator."""

    graph: Graph
    groups: Mapping[str, Group]
    golden: GoldenOutputs

    def find_original_of_output(self, node: Node, index: int) -> OriginalTensor | str:
        """Return the original of an output, or the reason why there is none (rules 3 to 5).

        A Cast or TransData has the original of the output that feeds it, unless its own description names a tensor of
        the right side.
        """
        for _ in range(len(self.graph.nodes)):
            own = read_original(node, index, self.groups[node.name])
            is_in_golden = not node.is_inserted and own and isinstance(self.golden.find(own), StoredTensor)
            if node.type not in CONVERSIONS or is_in_golden:
                return own or f"the graph names no original for output {index} of {node.name}"
            if index >= len(node.inputs):
                return own or f"the graph does not say what feeds {node.name}"
            producer, index = node.inputs[index]
            if producer not in self.graph.nodes:
                return f"the graph has no operator {producer}, which feeds {node.name}"
            node = self.graph.nodes[producer]
        return f"the operators that feed {node.name} form a ring"

    def find_original_of_input(self, node: Node, index: int) -> OriginalTensor | str:
        """Return the original of an input, or the reason why there is none (rule 4)."""
        if index >= len(node.inputs):
            return f"the graph does not say what feeds input {index} of {node.name}"
        producer, output = node.inputs[index]
        if producer not in self.graph.nodes:
            return f"the graph has no operator {producer}, which feeds {node.name}"
        return self.find_original_of_output(self.graph.nodes[producer], output)

    def pair(self, tensor: StoredTensor, node: Node, obstacle: str) -> Pair:
        """Return the pair of one dumped tensor, one-sided with a reason if it has no counterpart.

        `obstacle`: why it is not to be compared (`explain_uncompared`); empty if it is.
        """
        group = self.groups[node.name]
        left = replace(tensor, op=node.name, op_type=node.type or tensor.op_type, layout=find_left_layout(tensor, node))
        left_op, right_op = group.left_op, group.right_op
        if obstacle:
            return Pair(group.number, left, None, left_op, INSERTED, "none", reason=obstacle)
        find = self.find_original_of_input if tensor.role == "input" else self.find_original_of_output
        original = find(node, tensor.index)
        right = original if isinstance(original, str) else self.golden.find(original)
        if isinstance(original, str) or isinstance(right, str):
            reason = str(right)
            if right_op == INSERTED:
                reason = "inserted by the compiler; nothing in the original network corresponds"
            return Pair(group.number, left, None, left_op, right_op, "none", reason=reason)
        layout = find_layout(left, right, original)
        return Pair(group.number, left, right, left_op, right_op, "graph", layout=layout)

    def explain_uncompared(self, node: Node, first_order: Mapping[str, int]) -> str:
        """Return why this operator is not compared; empty if it is (rule 2).

        `first_order`: by dumped operator, the position of its first tensor in execution order.
        """
        group = self.groups[node.name]
        if len(group.nodes) == 1:
            return ""
        if node.l1_group:
            is_end = node.name in _find_ends(group, first_order)
            return "" if is_end else f"within L1 fusion group {node.l1_group}: its ends are compared"
        if any(output.origin for output in node.outputs) or (node.type in CONVERSIONS and not node.is_split_part):
            return ""
        return f"an inner part of {group.right_op}, which was split; nothing in the original network corresponds"


def _find_ends(group: Group, first_order: Mapping[str, int]) -> set[str]:
    """Return the names of a group's first and last dumped operator; only the last if their originals are the same."""
    dumped = [node for node in group.nodes if node.name in first_order]
    members = sorted(dumped, key=lambda node: first_order[node.name])
    same = members and members[0].stands_for == members[-1].stands_for
    return {node.name for node in (members[-1:] if same else members[:1] + members[-1:])}


def find_left_layout(tensor: StoredTensor, node: Node) -> str:
    """Return the layout of a left tensor, from the dump or else from the graph; empty if neither states it."""
    if tensor.layout:
        return tensor.layout
    layouts = node.input_layouts if tensor.role == "input" else tuple(output.layout for output in node.outputs)
    return layouts[tensor.index] if tensor.index < len(layouts) else ""


def find_layout(left: StoredTensor, right: StoredTensor, original: OriginalTensor) -> Layout | None:
    """Return the two layouts and the right shape (rule 6); None if the left tensor needs no conversion."""
    right_layout = original.layout.upper()
    for (layout, axes), other in TRANSPOSITIONS.items():
        swapped = tuple(original.shape[axis] for axis in axes) if len(original.shape) == 4 else ()
        if right_layout == layout and original.shape != right.shape == swapped:  # the right file was transposed
            right_layout = other
            break
    left_layout = _find_stored_layout(left, right, right_layout)
    if left.shape == right.shape and not transposes_to(left.shape, left_layout, right_layout, right.shape):
        return None
    return left_layout, right_layout, right.shape


def transposes_to(shape: tuple[int, ...], layout: str, target_layout: str, target: tuple[int, ...]) -> bool:
    """Return True if reordering the axes turns the shape into the target."""
    if layout == target_layout or len(shape) != 4 or not sorted(layout) == sorted(target_layout) == sorted("NCHW"):
        return False
    return tuple(shape[layout.index(axis)] for axis in target_layout) == target


def _find_stored_layout(left: StoredTensor, right: StoredTensor, right_layout: str) -> str:
    """Return the left's layout: the graph's, unless the file's number of axes contradicts it.

    NC1HWC0 is NCHW with the channels in blocks of 16 or 32 along a fifth axis.
    """
    left_layout = left.layout.upper()
    blocked = len(left.shape) == 5 and left.shape[-1] in (16, 32) and len(right.shape) <= 4
    if blocked and (not left_layout or len(left_layout) == 4):
        return "NC1HWC0"
    if left_layout == "NC1HWC0" and len(left.shape) == 4:  # the dump was converted when it was written
        fitting = (plain for plain in ("NCHW", "NHWC") if transposes_to(left.shape, plain, right_layout, right.shape))
        return next(fitting, right_layout)
    return left_layout


def group_by_file_name(graph: Graph) -> dict[str, list[Node]]:
    """Return the graph's nodes by their names in dump files."""
    nodes: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes.values():
        nodes[flatten_name(node.name)].append(node)
    return nodes


def find_node(tensor: StoredTensor, by_name: Mapping[str, list[Node]]) -> Node | str | None:
    """Return the node of a dumped tensor, a message if its name is ambiguous, or None if the graph has no such node.

    `by_name`: the result of `group_by_file_name`.
    """
    candidates = by_name.get(flatten_name(tensor.op), [])
    if len(candidates) > 1:
        exact = [node for node in candidates if node.name == tensor.op]
        candidates = exact or [node for node in candidates if node.type == tensor.op_type] or candidates
    if len(candidates) > 1:
        listed = " and ".join(node.name for node in candidates[:4])
        return f"ambiguous: {listed} are all written as {flatten_name(tensor.op)} in file names"
    return candidates[0] if candidates else None


def find_edges(graph: Graph, dumped: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the nearest dumped producers of each dumped operator's inputs."""
    return {name: tuple(_iterate_producers(graph, name, dumped)) for name in graph.nodes if name in dumped}


def _iterate_producers(graph: Graph, name: str, dumped: set[str]) -> Iterator[str]:
    """Yield the producers of an operator's inputs; instead of one that was not dumped, the producers of its inputs."""
    waiting = [producer for producer, _ in reversed(graph.nodes[name].inputs)]
    seen = {name}
    while waiting:
        producer = waiting.pop()
        if producer in seen or producer not in graph.nodes:
            continue
        seen.add(producer)
        if producer in dumped:
            yield producer
        else:
            waiting += [other for other, _ in reversed(graph.nodes[producer].inputs)]
