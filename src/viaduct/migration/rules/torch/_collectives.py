"""Collective backends in a script: the strings that reach a `backend` argument, and their replacement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from viaduct.cards.limits import Bilingual
from viaduct.migration.lookups import (
    bind_arguments,
    bindings_of,
    literal_text,
    mark_once,
    method_name,
    parameter_default,
    plain_name,
    positional_parameters,
)
from viaduct.migration.names import all_parameters
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._options import get_option_names
from viaduct.migration.source import FunctionNode

# `nccl`, also as an entry of `cpu:gloo,cuda:nccl`; a sentence that mentions it does not match.
NCCL_BACKEND = re.compile(r"(?:\w+:\w+,\s*)*(?:cuda:)?nccl(?:,\s*\w+:\w+)*", re.IGNORECASE)
# Function that returns a setting or a default -> position of the default.
DEFAULT_POSITIONS = {"os.environ.get": 1, "os.getenv": 1, "os.environ.setdefault": 1, "getattr": 2}
BACKEND_GETTERS = ("torch.distributed.get_backend", "torch.distributed.distributed_c10d.get_backend")
# Libraries that pass the backend's name on to torch.distributed unchanged.
LIBRARIES_WITH_BACKEND = (
    "transformers.", "accelerate.", "pytorch_lightning.", "lightning.", "lightning_fabric.", "deepspeed.",
    "mmengine.",
)  # fmt: skip
# Classes whose objects keep settings under the names of their keyword arguments.
SETTINGS_CLASSES = (
    "argparse.Namespace", "types.SimpleNamespace", "easydict.EasyDict", "addict.Dict", "ml_collections.ConfigDict",
)  # fmt: skip
UNEDITABLE_BACKEND: tuple[Bilingual, Bilingual] = (  # a message for one card, and one for `--to any`
    (
        "this names NCCL and cannot be edited safely: write {card.backend}",
        "此处指定了 NCCL 但无法安全改写:请改为 {card.backend}",
    ),
    (
        "this names NCCL and cannot be edited safely: use accelerator.name() and accelerator.backend()",
        "此处指定了 NCCL 但无法安全改写:请用 accelerator.name() 与 accelerator.backend() 组成",
    ),
)
MAX_DEPTH = 8  # longest chain of assignments and calls that is followed


@dataclass
class BackendOrigin:
    """Expressions that give a backend argument its value."""

    nccl_strings: list[ast.Constant] = field(default_factory=list)  # strings that name NCCL
    unknown_values: list[ast.AST] = field(default_factory=list)  # expressions whose value the file does not show


def is_nccl(node: ast.AST | None) -> bool:
    """Return True for a string such as "nccl" or "cpu:gloo,cuda:nccl"."""
    return NCCL_BACKEND.fullmatch(literal_text(node)) is not None


def trace_backend(site: Site, value: ast.AST) -> BackendOrigin:
    """Return the expressions that give a backend argument its value."""
    origin = BackendOrigin()
    collect_origin(site, value, origin, 0)
    return origin


def collect_origin(site: Site, value: ast.AST, origin: BackendOrigin, depth: int) -> None:
    """Add the NCCL strings that a value may be, and the expressions that cannot be followed, to an origin."""
    if isinstance(value, ast.Constant):
        if is_nccl(value) and value not in origin.nccl_strings:
            origin.nccl_strings.append(value)
        return
    sources = find_sources(site, value) if depth < MAX_DEPTH else None
    if sources is None:
        origin.unknown_values.append(value)
        return
    for source in sources:
        collect_origin(site, source, origin, depth + 1)


def find_sources(site: Site, value: ast.AST) -> list[ast.expr] | None:
    """Return the expressions that may give an expression its value; None if the file does not show them."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BoolOp):
        return value.values
    if isinstance(value, ast.NamedExpr):
        return [value.value]
    if isinstance(value, ast.Call):
        return find_sources_of_call(site, value)
    if isinstance(value, ast.Name):
        return find_sources_of_name(site, value)
    if isinstance(value, ast.Attribute):
        return find_sources_of_attribute(site, value)
    return find_dict_values(site, value.value, value.slice) if isinstance(value, ast.Subscript) else None


def find_sources_of_call(site: Site, call: ast.Call) -> list[ast.expr] | None:
    """Return the values that a call may return: a default, the string of `.lower()`, an entry of a dict; else None.

    [] for a call that only reads a backend which another edit changes.
    """
    name = site.qualified_name(call.func) or plain_name(call.func)
    method = method_name(call)
    if name in BACKEND_GETTERS:
        return []  # the backend of the process group: the rule `backend` edits the call that starts it
    if name == "torch.distributed.Backend":
        return call.args[:1]
    if name in DEFAULT_POSITIONS:
        position = DEFAULT_POSITIONS[name]
        return call.args[position : position + 1] or None  # without a default, the text shows no value
    if method in ("lower", "strip"):
        return [call.func.value]  # type: ignore[attr-defined]
    if method in ("get", "pop", "setdefault") and call.args:
        values = find_dict_values(site, call.func.value, call.args[0])  # type: ignore[attr-defined]
        return None if values is None else [*values, *call.args[1:2]]
    return None


def find_sources_of_name(site: Site, name: ast.Name) -> list[ast.expr] | None:
    """Return what is assigned to a name and, if it is a parameter, what calls pass for it; None if unknown."""
    bindings = bindings_of(site, name)
    values = [value for value in bindings if isinstance(value, ast.expr)]
    if bindings and len(values) == len(bindings):
        return values
    passed = find_passed_values(site, name.id, site.file.names.scope_of(name).node) if bindings else None
    return None if passed is None else values + passed


def find_passed_values(site: Site, parameter: str, function: ast.AST) -> list[ast.expr] | None:
    """Return the default of a parameter and what calls in this file pass for it; None if there is neither."""
    if not isinstance(function, FunctionNode) or parameter not in {item.arg for item in all_parameters(function.args)}:
        return None
    default = parameter_default(function, parameter)
    calls = site.file.index.calls.get(f"{site.file.names.module}.{function.name}", [])
    if default is None and not calls:
        return None
    passed = [bind_arguments(call, positional_parameters(function)).get(parameter) for call in calls]
    return [value for value in (default, *passed) if value is not None]


def find_sources_of_attribute(site: Site, node: ast.Attribute) -> list[ast.expr] | None:
    """Return the values that this file assigns to attributes of that name.

    [] for a command line option that has that name and no assignment: the rule `backend` changes its default.
    """
    if site.qualified_name(node) == "torch.distributed.Backend.NCCL":
        return []  # the rule `backend` replaces it
    values = [*find_assigned_values(site, node.attr)]
    is_option = any(
        node.attr in get_option_names(site, call) for call in site.file.index.methods.get("add_argument", [])
    )
    return values if values or is_option else None


def find_assigned_values(site: Site, name: str) -> Iterator[ast.expr]:
    """Yield the values that are assigned to an attribute of that name, or to the name in a class body."""
    statements: list[ast.Assign | ast.AnnAssign] = [
        *site.source.nodes_of_type(ast.Assign),
        *site.source.nodes_of_type(ast.AnnAssign),
    ]
    for statement in statements:
        in_class_body = isinstance(site.source.parents[statement], ast.ClassDef)
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            is_field = in_class_body and plain_name(target) == name
            if statement.value is not None and (is_field or getattr(target, "attr", "") == name):
                yield statement.value


def find_dict_values(site: Site, table: ast.expr, key: ast.expr) -> list[ast.expr] | None:
    """Return the values of a key in a dict literal, later assignments included.

    None if the file does not show the dict or the key, or the key has no value.
    """
    items = get_dict_items(site.values.assigned_value(table))
    if items is None or not isinstance(key, ast.Constant):
        return None
    stored = ast.dump(table).replace("ctx=Store()", "ctx=Load()")
    later = [
        statement.value
        for statement in site.source.nodes_of_type(ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Subscript) and is_literal_in(target.slice, key.value)
        if ast.dump(target.value) == stored
    ]
    return [*(value for name, value in items if name == key.value), *later] or None


def get_dict_items(node: ast.AST) -> list[tuple[object, ast.expr]] | None:
    """Return the entries of `{"backend": "nccl"}` or `dict(backend="nccl")`; None for anything else."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
    if isinstance(node, ast.Call) and plain_name(node.func) == "dict":
        return [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    return None


def has_unpacked_key(site: Site, key: str) -> bool:
    """Return True if the site's call gets `**` of a dict that the file shows and that has this key."""
    unpacked = (keyword.value for keyword in site.node.keywords if keyword.arg is None)
    dicts = (get_dict_items(site.values.assigned_value(value)) or [] for value in unpacked)
    return any(name == key for items in dicts for name, _ in items)


def follows_device(site: Site, value: ast.AST) -> bool:
    """Return True for `get_default_backend_for_device(…)`, and for a look-up in a dict that has the card's backend."""
    value = site.values.assigned_value(value)
    if isinstance(value, ast.Call):
        if (site.qualified_name(value.func) or "").rpartition(".")[2] == "get_default_backend_for_device":
            return True
        return (
            isinstance(value.func, ast.Attribute)
            and value.func.attr == "get"
            and has_backend_of_card(site, value.func.value)
        )
    return isinstance(value, ast.Subscript) and has_backend_of_card(site, value.value)


def has_backend_of_card(site: Site, table: ast.expr) -> bool:
    """Return True for a dict literal with the card's backend under the card's device."""
    card = site.target.card
    items = get_dict_items(site.values.assigned_value(table)) or []
    return any(name == card.device and is_literal_in(value, card.backend) for name, value in items)


def takes_backend_name(site: Site, name: str) -> bool:
    """Return True for a function of the project, a settings class, or a library that takes a backend's name."""
    is_own = name.partition(".")[0] in site.file.project.own_module_names or name.startswith(
        f"{site.file.names.module}."
    )
    return is_own or name.startswith(LIBRARIES_WITH_BACKEND) or name in SETTINGS_CLASSES


def is_backend_expression(site: Site, node: ast.expr) -> bool:
    """Return True for an expression with "backend" in its text, or a name that is assigned such an expression."""
    assigned = site.values.assigned_value(node)
    return any(isinstance(value, ast.expr) and "backend" in ast.unparse(value).lower() for value in (node, assigned))


def replace_backend(site: Site, text: ast.expr) -> bool:
    """Replace NCCL in a string; return False if the string stays, is reported, or was replaced before.

    With `--to any` the rule `backend_compare` edits strings in comparisons.
    """
    is_compared = isinstance(site.source.parents.get(text), ast.Compare)
    if site.file.is_left_alone(text) or (is_compared and site.target.is_any_card):
        return False
    if not mark_once(site, "backend", text):
        return False
    is_literal = isinstance(text, ast.Constant) and not site.source.is_in_f_string(text)
    new = site.target.render_backend_text(site, text) if is_literal else None  # type: ignore[arg-type]
    if new is None:
        site.request_review(*site.target.select_message(*UNEDITABLE_BACKEND), node=text)
        return False
    site.edit.replace_node(text, new)
    report_replaced(site, text)
    return True


def report_replaced(site: Site, node: ast.AST) -> None:
    english, chinese = site.target.select_message(
        (
            "NCCL supports NVIDIA GPUs only: the collective backend is {card.backend}",
            "NCCL 仅支持 NVIDIA 设备:集合通信后端改为 {card.backend}",
        ),
        ("the backend is that of the available card", "通信后端取决于现有的加速卡"),
    )
    site.report_change(english, zh=chinese, node=node)
