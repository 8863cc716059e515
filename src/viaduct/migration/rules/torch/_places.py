"""Location of a tensor as far as the text shows it: the card, the CPU, or unknown."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

from viaduct.migration.classes import lineage
from viaduct.migration.rule import Site
from viaduct.migration.values import TENSORS, starts_with_name

Place = Literal["card", "cpu"] | None

CARDS = ("cuda", "npu", "mlu")
HOST = ("cpu", "numpy", "tolist")
HOST_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy"}
# Functions whose result is where their argument is.
FOLLOW = {name for name in TENSORS if name.endswith("_like")} | {"as_tensor", "cat", "stack", "nn.Parameter"}
DATASETS = "torch.utils.data."


def place_of(site: Site, node: ast.AST, depth: int = 0) -> Place:
    """Return where a tensor or module is: on the card, on the CPU or unknown."""
    if depth > 8:
        return None
    if isinstance(node, ast.Call):
        return place_of_call(site, node, depth)
    if isinstance(node, ast.Subscript | ast.Starred | ast.NamedExpr):
        return place_of(site, node.value, depth + 1)
    if isinstance(node, ast.BinOp):
        return combine_places(place_of(site, side, depth + 1) for side in (node.left, node.right))
    if isinstance(node, ast.Attribute):
        return place_of_attribute(site, node, depth)
    return place_of_name(site, node, depth) if isinstance(node, ast.Name) else None


def place_of_call(site: Site, call: ast.Call, depth: int) -> Place:
    """Return where the result of a call is."""
    name = site.qualified(call.func) or ""
    if name.partition(".")[0] in HOST_LIBRARIES:
        return "cpu"
    if name.startswith("torch."):
        return place_of_made(site, call, name.removeprefix("torch."), depth)
    if not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr in HOST or (call.func.attr == "to" and any(is_cpu(value) for value in call.args)):
        return "cpu"
    return "card" if is_move(call) else place_of(site, call.func.value, depth + 1)


def place_of_made(site: Site, call: ast.Call, name: str, depth: int) -> Place:
    """Return where the result of torch's function is.

    A device argument other than the CPU is taken for the card. Without one, functions that make tensors make them on
    the CPU, and any other result is where the first argument is.
    """
    device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
    if device is not None:
        return "cpu" if is_cpu(device) else "card"
    if name in TENSORS - FOLLOW:
        return "cpu"
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, ast.List | ast.Tuple) else [first]
    return combine_places(place_of(site, part, depth + 1) for part in parts if part is not None)


def place_of_attribute(site: Site, node: ast.Attribute, depth: int) -> Place:
    """Return where an attribute is: `self.matrix` by the class's assignments, else where its object is."""
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        owner = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
        values = site.values.assigned_in(owner).get(node.attr, []) if owner is not None else []
        return combine_places(place_of(site, value, depth + 1) for value in values)
    return place_of(site, node.value, depth + 1)


def place_of_name(site: Site, node: ast.Name, depth: int) -> Place:
    """Return where a name is, computed once for each scope; a name that depends on itself is unknown."""
    if within_dataset(site, node):
        return "cpu"
    names, scope = site.work.names, site.work.names.scope_of(node)
    while node.id not in scope.bound and scope.outer is not None:
        scope = scope.elsewhere.get(node.id, scope.outer)
    known, key = site.work.answers, ("place", scope.node, node.id)
    if key not in known:
        known[key] = None
        known[key] = place_of_bound(site, node, names.lookup(node.id, scope) or [], depth)
    found: Place = known[key]
    return found


def place_of_bound(site: Site, node: ast.Name, bound: list[str | ast.expr | None], depth: int) -> Place:
    """Return where a name is by its bindings: on the card if one of them is there."""
    found = [place_of(site, what, depth + 1) for what in bound if isinstance(what, ast.expr)]
    if "card" in found:
        return "card"
    made = [what for what in bound if not (isinstance(what, ast.expr) and starts_with_name(what, node.id))]
    return combine_places(place_of(site, what, depth + 1) if isinstance(what, ast.expr) else None for what in made)


def within_dataset(site: Site, node: ast.AST) -> bool:
    """Return True in a class that derives from torch's Dataset: samples are made on the CPU."""
    holder = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    if holder is None:
        return False
    bases = lineage(site.work.project, f"{site.work.names.own}.{holder.name}")
    return any(base.startswith(DATASETS) for base in bases)


def combine_places(places: Iterable[Place]) -> Place:
    """Return the common place: the card if anything is there, the CPU only if everything is."""
    found = list(places)
    if "card" in found:
        return "card"
    return "cpu" if found and all(node == "cpu" for node in found) else None


def is_move(call: ast.Call) -> bool:
    """Return True for a move to a device other than the CPU; `x.to(torch.float64)` moves nothing."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in CARDS:
        return True
    entries = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return name == "to" and any(is_device(entry) for entry in entries)


def is_device(value: ast.expr) -> bool:
    """Return True for an expression that looks like a card, by a word in its text."""
    words = ("device", "gpu", "cuda", "npu", "mlu", "rank", "accelerator")
    text = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
    return isinstance(text, str) and any(fragment in text.lower() for fragment in words) and not is_cpu(value)


def is_cpu(value: ast.expr) -> bool:
    """`"cpu"`, `torch.device("cpu")`."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and ast.unparse(value.func).endswith("device"):
        return is_cpu(value.args[0])
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.startswith("cpu")
