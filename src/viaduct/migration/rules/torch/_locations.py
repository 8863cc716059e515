"""Location of a tensor, as far as the code shows it: the card, the CPU, or unknown (None)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.classes import list_ancestry
from viaduct.migration.lookups import is_self_attribute, keyword_value, literal_text, method_name
from viaduct.migration.names import Bindings
from viaduct.migration.rule import Site
from viaduct.migration.values import TENSOR_CONSTRUCTORS, starts_with_name

Location = Literal["card", "cpu"] | None

CPU_METHODS = ("cpu", "numpy", "tolist")
CPU_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy"}
# Functions of torch whose result has the location of their argument.
KEEP_LOCATION = {name for name in TENSOR_CONSTRUCTORS if name.endswith("_like")}
KEEP_LOCATION |= {"as_tensor", "cat", "stack", "nn.Parameter"}
CARD_WORDS = ("device", "gpu", "cuda", "npu", "mlu", "rank", "accelerator")
MAX_DEPTH = 8  # number of calls, operations and variables through which a tensor is followed


def find_location(site: Site, node: ast.AST, depth: int = 0) -> Location:
    """Return the location of a tensor or module."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(node, ast.Call):
        return find_location_of_call(site, node, depth)
    if isinstance(node, ast.Subscript | ast.Starred | ast.NamedExpr):
        return find_location(site, node.value, depth + 1)
    if isinstance(node, ast.BinOp):
        return combine_locations(find_location(site, side, depth + 1) for side in (node.left, node.right))
    if isinstance(node, ast.Attribute):
        return find_location_of_attribute(site, node, depth)
    return find_location_of_name(site, node, depth) if isinstance(node, ast.Name) else None


def find_location_of_call(site: Site, call: ast.Call, depth: int) -> Location:
    name = site.qualified_name(call.func) or ""
    if name.partition(".")[0] in CPU_LIBRARIES:
        return "cpu"
    if name.startswith("torch."):
        return find_location_of_torch_result(site, call, name.removeprefix("torch."), depth)
    if not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr in CPU_METHODS or (call.func.attr == "to" and any(is_cpu(value) for value in call.args)):
        return "cpu"
    return "card" if is_move(call) else find_location(site, call.func.value, depth + 1)


def find_location_of_torch_result(site: Site, call: ast.Call, name: str, depth: int) -> Location:
    """Return the location of the result of a function of torch.

    A device argument that is not the CPU counts as the card. Without one, constructors of tensors give the CPU, and
    other functions the location of their first argument.
    """
    device = keyword_value(call, "device")
    if device is not None:
        return "cpu" if is_cpu(device) else "card"
    if name in TENSOR_CONSTRUCTORS - KEEP_LOCATION:
        return "cpu"
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, ast.List | ast.Tuple) else call.args[:1]
    return combine_locations(find_location(site, part, depth + 1) for part in parts)


def find_location_of_attribute(site: Site, node: ast.Attribute, depth: int) -> Location:
    """Return the location of an attribute.

    The assignments in the class decide for `self.matrix`; any other attribute has the location of its object.
    """
    if not is_self_attribute(node):
        return find_location(site, node.value, depth + 1)
    owner = site.source.class_around(node)
    values = site.values.assigned_in(owner).get(node.attr, []) if owner is not None else []
    return combine_locations(find_location(site, value, depth + 1) for value in values)


def find_location_of_name(site: Site, node: ast.Name, depth: int) -> Location:
    """Return the location of a variable, computed once for each scope."""
    if is_in_dataset(site, node):
        return "cpu"
    names, scope = site.file.names, site.file.names.scope_of(node)
    binding_scope = names.binding_scope(node.id, scope)
    cache, key = site.file.cache, ("location", binding_scope.node if binding_scope else None, node.id)
    if key not in cache:
        cache[key] = None  # the answer for a variable that depends on itself
        cache[key] = find_location_of_bindings(site, node, names.lookup(node.id, scope) or [], depth)
    location: Location = cache[key]
    return location


def find_location_of_bindings(site: Site, node: ast.Name, bindings: Bindings, depth: int) -> Location:
    """Return the location of a variable: the card if any value that is assigned to it is there.

    `x = x.view(-1)`, which begins with the variable, counts only if it moves x to the card.
    """
    locations = [find_location(site, value, depth + 1) if isinstance(value, ast.expr) else None for value in bindings]
    if "card" in locations:
        return "card"
    return combine_locations(
        location
        for location, value in zip(locations, bindings, strict=True)
        if not (isinstance(value, ast.expr) and starts_with_name(value, node.id))
    )


def is_in_dataset(site: Site, node: ast.AST) -> bool:
    """Return True in a class that derives from one of torch.utils.data; samples of a Dataset are on the CPU."""
    owner = site.source.class_around(node)
    bases = list_ancestry(site.file.project, f"{site.file.names.module}.{owner.name}") if owner is not None else []
    return any(base.startswith("torch.utils.data.") for base in bases)


def combine_locations(locations: Iterable[Location]) -> Location:
    """Return the card if one location is the card, the CPU if all are the CPU, else None."""
    distinct = set(locations)
    if "card" in distinct:
        return "card"
    return "cpu" if distinct == {"cpu"} else None


def is_move(call: ast.Call) -> bool:
    """Return True for a move to a device other than the CPU; `x.to(torch.float64)` moves nothing."""
    method = method_name(call)
    if method in DEVICE_TYPES:  # .cuda(), .npu(), .mlu()
        return True
    devices = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return method == "to" and any(map(mentions_card, devices))


def mentions_card(value: ast.expr) -> bool:
    """Return True for an expression with one of CARD_WORDS in its text."""
    text = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
    return isinstance(text, str) and any(word in text.lower() for word in CARD_WORDS) and not is_cpu(value)


def is_cpu(value: ast.expr) -> bool:
    """Return True for `"cpu"` and `torch.device("cpu")`."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and ast.unparse(value.func).endswith("device"):
        return is_cpu(value.args[0])
    return literal_text(value).startswith("cpu")
