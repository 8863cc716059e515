"""Statements that add NpuOptimizer to a ConfigProto, and the variables that hold a ConfigProto.

NpuOptimizer optimizes graphs; NPUOptimizer is a training optimizer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.imports import REGISTERING_MODULE
from viaduct.migration.lookups import bindings_of, is_self_attribute, sole_target
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.rules.tf1._tensorflow_names import render_rewriter_config, reserve_local_name

CONFIG_PROTO = ("tensorflow.ConfigProto", "tensorflow.core.protobuf.config_pb2.ConfigProto")


def render_npu_optimizer(site: Site, config: str, at: ast.AST) -> list[str]:
    """Return the statements that let a session with the ConfigProto `config` run on the NPU.

    Request the import that registers NpuOptimizer.
    """
    site.file.side_effect_imports.add(REGISTERING_MODULE)
    custom = reserve_local_name(site, at, "custom_op")
    rewrite = f"{config}.graph_options.rewrite_options"
    return [
        f"{custom} = {rewrite}.custom_optimizers.add()",
        f'{custom}.name = "NpuOptimizer"',
        f'{custom}.parameter_map["use_off_line"].b = True',
        f"{rewrite}.remapping = {render_rewriter_config(site)}.OFF",
    ]


@dataclass(frozen=True)
class ConfigVariable:
    """Variable or attribute of self that may hold a config, with its assignments."""

    parts: tuple[str, ...]  # ("config",), ("self", "config")
    assignments: list[ast.stmt]
    values: list[ast.expr]  # the value of each assignment

    @property
    def text(self) -> str:
        return ".".join(self.parts)


def find_config_variable(site: Site, node: ast.expr) -> ConfigVariable | None:
    """Return a name with all its assignments, or `self.x` with the assignments in its class.

    None for any other expression, and for a name with other bindings than assignments, such as a parameter.
    """
    if isinstance(node, ast.Name):
        bindings = bindings_of(site, node)
        values = [binding for binding in bindings if isinstance(binding, ast.expr)]
        if not bindings or len(values) != len(bindings):
            return None
        return ConfigVariable((node.id,), [site.source.statement_around(value) for value in values], values)
    if isinstance(node, ast.Attribute) and is_self_attribute(node):
        assignments = list(find_attribute_assignments(site, node))
        values = [assignment.value for assignment in assignments]
        return ConfigVariable(("self", node.attr), list(assignments), values)
    return None


def find_attribute_assignments(site: Site, node: ast.Attribute) -> Iterator[ast.Assign]:
    """Yield the assignments to the same attribute of self in the class around a node."""
    owner = site.source.class_around(node)
    for inner in ast.walk(owner) if owner else ():
        target = sole_target(inner) if isinstance(inner, ast.Assign) else None
        if target is not None and get_field_path(site, target) == ("self", node.attr):
            yield inner  # type: ignore[misc]


def is_config_proto(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified_name(node.func) in CONFIG_PROTO


def get_field_path(site: Site, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
    """Return `config.graph_options.rewrite_options` as its parts; () for anything but a dotted name.

    A variable is replaced by the field that it was assigned, up to five times in a row, and an added element by the
    field that it was added to: `custom_op` by `config.graph_options.rewrite_options.custom_optimizers`.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    origin = site.values.assigned_value(node)
    if isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute) and origin.func.attr == "add":
        origin = origin.func.value
    if isinstance(origin, ast.Attribute) and depth < 5:
        prefix = get_field_path(site, origin, depth + 1)
        return (*prefix, *reversed(parts)) if prefix else ()
    return (node.id, *reversed(parts))


def find_adding_statement(site: Site, config: ConfigVariable, node: ast.expr) -> ast.stmt | None:
    """Return the first statement that adds a custom optimizer to a config; None if none does.

    The config is the variable that its name refers to at `node`: another scope may have one of the same name.
    """
    return find_adding_statements(site).get((config.parts, identify_variable(site, config.parts, node)))


@cache_per_file
def find_adding_statements(site: Site) -> dict[tuple[tuple[str, ...], object], ast.stmt]:
    """Return the first statement that adds a custom optimizer, by the config's parts and `identify_variable`."""
    statements: dict[tuple[tuple[str, ...], object], ast.stmt] = {}
    for node in site.source.attributes.get("custom_optimizers", ()):
        parts = get_field_path(site, node)
        if parts[-3:] == ("graph_options", "rewrite_options", "custom_optimizers") and len(parts) > 3:
            config = parts[:-3]
            statements.setdefault((config, identify_variable(site, config, node)), site.source.statement_around(node))
    return statements


def has_custom_optimizer(site: Site, config: ConfigVariable, node: ast.expr) -> bool:
    """Return True if a statement adds a custom optimizer to the config, or npu_config_proto made it.

    `node` is as in `find_adding_statement`. Ascend's npu_config_proto returns a config with NpuOptimizer.
    """
    is_made_by_vendor = any(site.values.kind(value) == "npu_config_proto" for value in config.values)
    return is_made_by_vendor or find_adding_statement(site, config, node) is not None


def is_same_variable(site: Site, config: ConfigVariable, left: ast.AST, right: ast.AST) -> bool:
    """Return True if the config's name refers to the same variable at two nodes."""
    return identify_variable(site, config.parts, left) == identify_variable(site, config.parts, right)


def identify_variable(site: Site, parts: tuple[str, ...], node: ast.AST) -> object:
    """Return a key that differs for variables of the same name in different scopes."""
    if parts[0] == "self":
        return site.source.class_around(node)
    names = site.file.names
    return id(names.lookup(".".join(parts), names.scope_of(node)))


def find_last_setting(site: Site, parts: tuple[str, ...], start: ast.stmt) -> ast.stmt:
    """Return the last of the consecutive statements from `start` on that set fields of a config.

    `parts` names the config or a field of it, as `get_field_path` does.
    """
    block, last = site.source.block_around(start), start
    for statement in block[block.index(start) + 1 :]:
        target: ast.AST | None = sole_target(statement) if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = statement.value.func
        while isinstance(target, ast.Attribute | ast.Subscript) and not get_field_path(site, target):
            target = target.value  # `custom_op.parameter_map` of `custom_op.parameter_map["use_off_line"].b`
        path = get_field_path(site, target) if target is not None else ()
        if path[: len(parts)] != parts or len(path) <= len(parts):
            break
        last = statement
    return last
