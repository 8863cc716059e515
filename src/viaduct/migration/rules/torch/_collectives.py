"""Origin of the name of a collective backend. Not a rule: backend and backend_compare share it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Site
from viaduct.migration.targets import card

NCCL = re.compile(r"(?<![\w.])(?:cuda:)?nccl(?![\w.])", re.IGNORECASE)
WHOLE = re.compile(r"(?:\w+:\w+,\s*)*(?:cuda:)?nccl(?:,\s*\w+:\w+)*", re.IGNORECASE)
"""`nccl`, or one entry of `cpu:gloo,cuda:nccl`; a sentence that mentions it is neither."""
DEFAULTED = {"os.environ.get": 1, "os.getenv": 1, "os.environ.setdefault": 1, "getattr": 2}
"""Calls that give what the user set, else the argument at this place."""
ASKED = ("torch.distributed.get_backend", "torch.distributed.distributed_c10d.get_backend")


# Libraries that pass the backend's name on to torch.distributed unchanged.
HAND_ON = (
    "transformers.",
    "accelerate.",
    "pytorch_lightning.",
    "lightning.",
    "lightning_fabric.",
    "deepspeed.",
    "mmengine.",
)
# Containers that keep settings under the names of their keyword arguments.
HOLDERS = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "easydict.EasyDict",
    "addict.Dict",
    "ml_collections.ConfigDict",
)


@dataclass
class Origin:
    """texts: the strings that name NCCL and reach a value; unknown: what could not be followed."""

    texts: list[ast.Constant] = field(default_factory=list)
    unknown: list[ast.AST] = field(default_factory=list)


def is_nccl(node: ast.AST | None) -> bool:
    """Return True for a string that names NCCL, alone or for a device as in `cuda:nccl`."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and WHOLE.fullmatch(node.value) is not None


def origin(site: Site, value: ast.AST) -> Origin:
    """Return the strings that name NCCL and may be this value, and the expressions that cannot be followed."""
    found = Origin()
    follow(site, value, found, 0)
    return found


def follow(site: Site, value: ast.AST, found: Origin, depth: int) -> None:
    """Collect the strings that a value may be, and the expressions that cannot be followed."""
    if isinstance(value, ast.Constant):
        if is_nccl(value) and value not in found.texts:
            found.texts.append(value)
        return
    parts = parts_of(site, value) if depth < 8 else None
    if parts is None:
        found.unknown.append(value)
        return
    for part in parts:
        follow(site, part, found, depth + 1)


def parts_of(site: Site, value: ast.AST) -> list[ast.expr] | None:
    """Return what a value may be made of; None where the text does not show it."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BoolOp):
        return value.values
    if isinstance(value, ast.NamedExpr):
        return [value.value]
    if isinstance(value, ast.Call):
        return parts_of_call(site, value)
    if isinstance(value, ast.Name):
        return parts_of_name(site, value)
    if isinstance(value, ast.Attribute):
        return parts_of_attribute(site, value)
    if isinstance(value, ast.Subscript):
        return parts_of_item(site, value)
    return None


def parts_of_call(site: Site, call: ast.Call) -> list[ast.expr] | None:
    """Return what the result of a call may be: a default, a field, the value of an option."""
    name = site.qualified(call.func) or (call.func.id if isinstance(call.func, ast.Name) else "")
    if name in ASKED:
        return []
    if name == "torch.distributed.Backend":
        return call.args[:1]
    if name in DEFAULTED:
        return call.args[DEFAULTED[name] :][:1]
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("lower", "strip"):
        return [call.func.value]
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("get", "pop", "setdefault") and call.args:
        held = entries(site, call.func.value, call.args[0])
        return None if held is None else [*held, *call.args[1:2]]
    return None


def parts_of_name(site: Site, name: ast.Name) -> list[ast.expr] | None:
    """Return what a name may stand for: its assignments, or what calls pass for a parameter."""
    scope = site.work.names.scope_of(name)
    bound = site.work.names.lookup(name.id, scope)
    if not bound:
        return None
    values = [what for what in bound if isinstance(what, ast.expr)]
    if len(values) == len(bound):
        return values
    passed = passed_for(site, name.id, scope.node)
    return None if passed is None else values + passed


def passed_for(site: Site, name: str, function: ast.AST) -> list[ast.expr] | None:
    """Return the default of a parameter and the values that calls in this file give for it; None if there are none."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    entries = [*function.args.posonlyargs, *function.args.args]
    if name not in {parameter.arg for parameter in (*entries, *function.args.kwonlyargs)}:
        return None
    location = next((at for at, entry in enumerate(entries) if entry.arg == name), -1)
    default = default_of(function, name)
    calls = site.work.index.calls.get(f"{site.work.names.own}.{function.name}", [])
    if default is None and not calls:
        return None
    given = [value for call in calls for value in given_for(call, name, location)]
    return [*([default] if default is not None else []), *given]


def default_of(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """Return the default of a parameter, if it has one."""
    entries = [*function.args.posonlyargs, *function.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(entries), reversed(function.args.defaults), strict=False)
    ]
    pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return next((value for pair, value in pairs if pair.arg == name), None)


def given_for(call: ast.Call, name: str, position: int) -> Iterator[ast.expr]:
    """Yield what a call gives for a parameter, by keyword or position."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg == name)
    if 0 <= position < len(call.args) and not any(
        isinstance(argument, ast.Starred) for argument in call.args[: position + 1]
    ):
        yield call.args[position]


def parts_of_attribute(site: Site, value: ast.Attribute) -> list[ast.expr] | None:
    """Return the values that this file assigns to an attribute of that name, whatever its object.

    An option of that name without such an assignment gives []: its default is changed where it is declared.
    """
    if site.qualified(value) == "torch.distributed.Backend.NCCL":
        return []  # renamed where it stands
    found = [*fields(site, value.attr)]
    options = [call for call in site.work.index.methods.get("add_argument", []) if dest(call) == value.attr]
    return found if found or options else None


def fields(site: Site, name: str) -> Iterator[ast.expr]:
    """Yield what is assigned to an attribute of that name, or in a class body."""
    for node in site.source.of_kind(ast.Assign):
        for target in node.targets:
            own = in_class(site, node) and isinstance(target, ast.Name) and target.id == name
            if own or (isinstance(target, ast.Attribute) and target.attr == name):
                yield node.value
    for declared in site.source.of_kind(ast.AnnAssign):
        field = declared.target
        named = field.id if isinstance(field, ast.Name) and in_class(site, declared) else getattr(field, "attr", "")
        if named == name and declared.value is not None:
            yield declared.value


def in_class(site: Site, node: ast.stmt) -> bool:
    """Return True for a statement directly in a class body."""
    return isinstance(site.source.parents[node], ast.ClassDef)


def dest(call: ast.Call) -> str:
    """Return the attribute under which argparse keeps an option."""
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    texts = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    long = next((text for text in texts if text.startswith("--")), texts[0] if texts else "")
    return long.lstrip("-").replace("-", "_")


def parts_of_item(site: Site, value: ast.Subscript) -> list[ast.expr] | None:
    """Return what `table[key]` may be."""
    return entries(site, value.value, value.slice)


def entries(site: Site, holder: ast.expr, key: ast.expr) -> list[ast.expr] | None:
    """Return the values of a key of a dict that is written out in this file, later assignments included."""
    if not isinstance(key, ast.Constant):
        return None
    made = site.values.origin(holder)
    held = dict_items(made)
    if held is None:
        return None
    later = [
        node.value
        for node in site.source.of_kind(ast.Assign)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == key.value
        and ast.dump(target.value) == ast.dump(holder).replace("ctx=Store()", "ctx=Load()")
    ]
    values = [item for name, item in held if name == key.value]
    return [*values, *later] or None


def dict_items(made: ast.AST) -> list[tuple[object, ast.expr]] | None:
    """Return the entries of `{"backend": "nccl"}` or `dict(backend="nccl")`."""
    if isinstance(made, ast.Dict):
        pairs = zip(made.keys, made.values, strict=True)
        return [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "dict":
        return [(keyword.arg, keyword.value) for keyword in made.keywords if keyword.arg]
    return None


def serves_target(site: Site, value: ast.AST) -> bool:
    """Return True for a backend that follows the device: torch's own choice, or a table that has the card's."""
    value = site.values.origin(value)
    if isinstance(value, ast.Call):
        name = site.qualified(value.func) or ""
        if name.rpartition(".")[2] == "get_default_backend_for_device":
            return True
        looked_up = isinstance(value.func, ast.Attribute) and value.func.attr == "get"
        return looked_up and has_entry(site, value.func.value)  # type: ignore[attr-defined]
    return isinstance(value, ast.Subscript) and has_entry(site, value.value)


def has_entry(site: Site, table: ast.expr) -> bool:
    """Return True if a table that is written out has the card's backend under its device."""
    items = dict_items(site.values.origin(table)) or []
    target = card(site.options)
    return any(
        name == target.device and isinstance(value, ast.Constant) and value.value == target.backend
        for name, value in items
    )


def hands_backend_on(site: Site, name: str) -> bool:
    """Return True for a function of the project, a holder of settings, or a library that hands its backend on."""
    own = name.partition(".")[0] in site.work.project.own_names or name.startswith(f"{site.work.names.own}.")
    return own or name.startswith(HAND_ON) or name in HOLDERS


def swap(site: Site, text: ast.Constant) -> bool:
    """Replace NCCL in one string; return False where that was done already or cannot be."""
    if site.source.in_f_string(text) or site.work.is_served(text):
        return False
    start, end = site.source.span(text)
    if ("backend", start) in site.work.seen:
        return False
    site.work.seen[("backend", start)] = None
    for match in NCCL.finditer(site.source.text, start, end):
        site.edit.replace(*match.span(), in_case(match.group(), backend_text(site, match.group())))
    return True


def backend_text(site: Site, text: str) -> str:
    """Return the card's backend for a text, with its device where the text has one."""
    chosen = card(site.options)
    return f"{chosen.device}:{chosen.backend}" if text.lower().startswith("cuda:") else chosen.backend


def in_case(old: str, new: str) -> str:
    """Return the new text in capitals if the old one is."""
    return new.upper() if old.isupper() else new


def replace_backend(site: Site, text: ast.Constant) -> bool:
    """Write the target's backend for one string, and say so; False where it was done already or cannot be."""
    if site.target.is_any:
        return replace_by_helper(site, text)
    replaced = swap(site, text)
    if replaced:
        say_replaced(site, text)
    return replaced


def replace_by_helper(site: Site, text: ast.Constant) -> bool:
    """Write a call of the helper for one string; False where that was done or cannot be."""
    compared = isinstance(site.source.parents.get(text), ast.Compare)
    if ("any", text) in site.work.seen or site.work.is_served(text) or compared:
        return False
    site.work.seen[("any", text)] = None
    if not is_literal_in(text, "nccl", "NCCL") or site.source.in_f_string(text):
        site.manual(
            "this names NCCL: put it together from accelerator.name() and accelerator.backend()",
            zh="此处指定了 NCCL:请用 accelerator.name() 与 accelerator.backend() 组成",
            node=text,
        )
        return False
    site.edit.node(text, site.target.render_backend(site, text))
    say_replaced(site, text)
    return True


def say_replaced(site: Site, node: ast.AST) -> None:
    """Report that a backend was replaced."""
    if site.target.is_any:
        site.changed("the backend is that of the available card", zh="通信后端取决于现有的加速卡", node=node)
        return
    new = card(site.options).backend
    site.changed(
        f"NCCL supports NVIDIA GPUs only: the collective backend is {new}",
        zh=f"NCCL 仅支持 NVIDIA 设备:集合通信后端改为 {new}",
        node=node,
    )


def is_backend(site: Site, side: ast.expr) -> bool:
    """Return True for an expression with "backend" in its text, or a name that is assigned such an expression."""
    if "backend" in ast.unparse(side).lower():
        return True
    made = site.values.origin(side)
    return made is not side and isinstance(made, ast.expr) and "backend" in ast.unparse(made).lower()
