"""Location of a tensor, as far as the code shows it: the card, the CPU, or unknown (None)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

from viaduct.migration.classes import lineage
from viaduct.migration.lookups import enclosing_class, is_self_attribute, keyword_value, literal_text
from viaduct.migration.names import Bound
from viaduct.migration.rule import Site
from viaduct.migration.values import TENSOR_CONSTRUCTORS, starts_with_name

Place = Literal["card", "cpu"] | None

CARDS = ("cuda", "npu", "mlu")  # methods that move to a card, and modules of torch
CPU_METHODS = ("cpu", "numpy", "tolist")
CPU_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy"}
# Functions of torch whose result is where their argument is.
KEEP_PLACE = {name for name in TENSOR_CONSTRUCTORS if name.endswith("_like")} | {
    "as_tensor",
    "cat",
    "stack",
    "nn.Parameter",
}
CARD_WORDS = ("device", "gpu", "cuda", "npu", "mlu", "rank", "accelerator")
MAX_DEPTH = 8


def place_of(site: Site, node: ast.AST, depth: int = 0) -> Place:
    """Return where a tensor or module is; None if that is unknown."""
    if depth > MAX_DEPTH:
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
    if name.partition(".")[0] in CPU_LIBRARIES:
        return "cpu"
    if name.startswith("torch."):
        return place_of_torch_result(site, call, name.removeprefix("torch."), depth)
    if not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr in CPU_METHODS or (call.func.attr == "to" and any(is_cpu(value) for value in call.args)):
        return "cpu"
    return "card" if is_move(call) else place_of(site, call.func.value, depth + 1)


def place_of_torch_result(site: Site, call: ast.Call, name: str, depth: int) -> Place:
    """Return where the result of torch's function is.

    A device argument other than the CPU is taken for the card. Without one, functions that make tensors make them on
    the CPU, and any other result is where the first argument is.
    """
    device = keyword_value(call, "device")
    if device is not None:
        return "cpu" if is_cpu(device) else "card"
    if name in TENSOR_CONSTRUCTORS - KEEP_PLACE:
        return "cpu"
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, ast.List | ast.Tuple) else call.args[:1]
    return combine_places(place_of(site, part, depth + 1) for part in parts)


def place_of_attribute(site: Site, node: ast.Attribute, depth: int) -> Place:
    """Return where an attribute is: `self.matrix` by the class's assignments, else where its object is."""
    if not is_self_attribute(node):
        return place_of(site, node.value, depth + 1)
    owner = enclosing_class(site, node)
    values = site.values.assigned_in(owner).get(node.attr, []) if owner is not None else []
    return combine_places(place_of(site, value, depth + 1) for value in values)


def place_of_name(site: Site, node: ast.Name, depth: int) -> Place:
    """Return where a name is, computed once for each scope; a name that depends on itself is unknown."""
    if is_in_dataset(site, node):
        return "cpu"
    names, scope = site.work.names, site.work.names.scope_of(node)
    binding_scope = names.binding_scope(node.id, scope)
    known, key = site.work.answers, ("place", binding_scope.node if binding_scope else None, node.id)
    if key not in known:
        known[key] = None
        known[key] = place_of_bindings(site, node, names.lookup(node.id, scope) or [], depth)
    place: Place = known[key]
    return place


def place_of_bindings(site: Site, node: ast.Name, bindings: Bound, depth: int) -> Place:
    """Return where a name is by its bindings: on the card if one of them is there.

    An assignment that begins with the name itself, `x = x.view(-1)`, counts only if it moves x to the card.
    """
    places = [place_of(site, value, depth + 1) if isinstance(value, ast.expr) else None for value in bindings]
    if "card" in places:
        return "card"
    return combine_places(
        place
        for place, value in zip(places, bindings, strict=True)
        if not (isinstance(value, ast.expr) and starts_with_name(value, node.id))
    )


def is_in_dataset(site: Site, node: ast.AST) -> bool:
    """Return True in a class that derives from torch's Dataset: samples are made on the CPU."""
    owner = enclosing_class(site, node)
    bases = lineage(site.work.project, f"{site.work.names.module}.{owner.name}") if owner is not None else []
    return any(base.startswith("torch.utils.data.") for base in bases)


def combine_places(places: Iterable[Place]) -> Place:
    """Return the common place: the card if anything is there, the CPU only if everything is."""
    found = set(places)
    if "card" in found:
        return "card"
    return "cpu" if found == {"cpu"} else None


def is_move(call: ast.Call) -> bool:
    """Return True for a move to a device other than the CPU; `x.to(torch.float64)` moves nothing."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in CARDS:
        return True
    devices = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return method == "to" and any(is_device(device) for device in devices)


def is_device(value: ast.expr) -> bool:
    """Return True for an expression that looks like a card, by a word in its text."""
    text = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
    return isinstance(text, str) and any(word in text.lower() for word in CARD_WORDS) and not is_cpu(value)


def is_cpu(value: ast.expr) -> bool:
    """Return True for `"cpu"` and `torch.device("cpu")`."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and ast.unparse(value.func).endswith("device"):
        return is_cpu(value.args[0])
    return literal_text(value).startswith("cpu")
