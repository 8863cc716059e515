"""Add defaults to reads of environment variables that hold a rank or a number of ranks.

     import os
     from npu_bridge.estimator import npu_ops
    -rank_size = int(os.getenv("RANK_SIZE"))
    +rank_size = int(os.getenv("RANK_SIZE", "1"))

On a single device the variables may be missing, and `int(…)` would fail. RANK_SIZE is 1 then; RANK_ID, DEVICE_ID and
ASCEND_DEVICE_ID are 0. An empty default is replaced too. Only files that import npu_bridge, hccl or a plug-in for
PyTorch change.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import VENDOR_MODULES
from viaduct.migration.lookups import mark_once
from viaduct.migration.rule import Rule, Site, cache_per_file

rule = Rule(__name__, target_needs="communication", spec_rows=("V7",))

DEFAULTS = {"RANK_SIZE": "1", "RANK_ID": "0", "DEVICE_ID": "0", NPU.device_variable: "0"}
READING_FUNCTIONS = ("os.getenv", "os.environ.get")


@rule.node(ast.Call, only_if_file_contains=tuple(DEFAULTS))
def edit_int_call(site: Site) -> None:
    """Add a default to an environment variable that `int(…)` converts, directly or through a name.

    The file must import one of VENDOR_MODULES, or another rule must have requested such an import.
    """
    is_int_call = isinstance(site.node.func, ast.Name) and site.node.func.id == "int" and len(site.node.args) == 1
    is_import_requested = any(name.partition(".")[0] in VENDOR_MODULES for name in site.file.needed_imports.values())
    if not is_int_call or not (is_import_requested or imports_vendor_module(site)):
        return
    value = site.values.assigned_value(remove_strip(site.node.args[0]))
    set_default(site, remove_strip(value))


def remove_strip(node: ast.AST) -> ast.AST:
    """Return x for `x.strip()`, and any other expression unchanged."""
    is_strip = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip"
    return node.func.value if is_strip else node  # type: ignore[attr-defined]


@cache_per_file
def imports_vendor_module(site: Site) -> bool:
    """Return True if the file imports npu_bridge, hccl or a plug-in for PyTorch."""
    bindings = site.file.names.scopes[site.source.tree].bindings.values()
    modules = [value for values in bindings for value in values if isinstance(value, str)]
    return any(name.partition(".")[0] in VENDOR_MODULES for name in [*modules, *site.file.names.stars])


def set_default(site: Site, value: ast.AST) -> None:
    """Add the default to an expression that reads a variable of DEFAULTS, once, and report it."""
    if ("default", value) in site.file.handled or site.source.is_in_f_string(value):
        return
    name = add_default(site, value)
    if name:
        mark_once(site, "default", value)
        default = DEFAULTS[name]
        site.report_change(f"{name} is {default} if it is not set", zh=f"{name} 未设置时取 {default}", node=value)


def add_default(site: Site, value: ast.AST) -> str:
    """Add the default; return the environment variable that got one, or ""."""
    if isinstance(value, ast.Subscript) and site.qualified_name(value.value) == "os.environ":
        name = get_rank_variable(value.slice)
        if name:
            site.edit.replace_node(
                value, f'{site.text_of(value.value)}.get({site.text_of(value.slice)}, "{DEFAULTS[name]}")'
            )
        return name
    if not isinstance(value, ast.Call) or site.qualified_name(value.func) not in READING_FUNCTIONS or value.keywords:
        return ""
    name = get_rank_variable(value.args[0]) if value.args else ""
    default = value.args[1] if len(value.args) == 2 else None
    if name and default is None:
        site.edit.add_argument(value, f'"{DEFAULTS[name]}"')
    elif name and isinstance(default, ast.Constant) and not default.value:
        site.edit.replace_node(default, f'"{DEFAULTS[name]}"')
    else:
        return ""
    return name


def get_rank_variable(node: ast.expr) -> str:
    """Return the value of a literal that is a key of DEFAULTS; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and node.value in DEFAULTS else ""
