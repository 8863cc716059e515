"""Statements that add NpuOptimizer to a ConfigProto, and the variables that hold a ConfigProto.

NpuOptimizer optimizes graphs; NPUOptimizer is a training optimizer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.imports import REGISTERING_MODULE
from viaduct.migration.lookups import bindings_of, is_self_attribute, mark_once, plain_name, sole_target
from viaduct.migration.names import Comprehension
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.source import FunctionNode

REWRITER = "tensorflow.core.protobuf.rewriter_config_pb2"
CONFIG_PROTO = ("tensorflow.ConfigProto", "tensorflow.core.protobuf.config_pb2.ConfigProto")
COMPAT_IMPORT = re.compile(r"^import tensorflow\.compat\.v1 as (\w+)", re.MULTILINE)
DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def tensorflow_prefix(site: Site) -> str:
    """Return the prefix of TensorFlow's names at the site or else in the file: `tf.`, `tf.compat.v1.`, ""."""
    if isinstance(site.node, ast.Call) and site.name.startswith("tensorflow."):
        text, name = site.text_of(site.node.func), site.name.removeprefix("tensorflow.")
        if text.endswith("." + name) and DOTTED_NAME.fullmatch(text):
            return text[: -len(name)]
    compat_import = COMPAT_IMPORT.search(site.source.text)
    alias = compat_import.group(1) if compat_import else site.file.names.local_name("tensorflow")
    if alias is None:
        return ""
    return f"{alias}.compat.v1." if f"{alias}.compat.v1." in site.source.text else f"{alias}."


def tensorflow_name(site: Site, name: str) -> str:
    """Return a TensorFlow name with the file's prefix: `tf.ConfigProto`; import the name if the file has no prefix."""
    prefix = tensorflow_prefix(site)
    return prefix + name if prefix else site.file.import_name("tensorflow", name)


def import_module(site: Site, module: str, alias: str = "") -> str:
    """Import a module, as `alias`, unless the file does so already; return its local name."""
    imported = site.file.names.local_name(module)
    if imported is not None:
        return imported
    local = reserve_name(site, alias or module)
    site.file.request_import(local, module)
    return local


def rewriter_config_name(site: Site) -> str:
    """Return `RewriterConfig`, or `rewriter_config_pb2.RewriterConfig` where the file imports that module."""
    module = site.file.names.local_name(REWRITER) if "rewriter_config_pb2" in site.source.text else None
    return f"{module}.RewriterConfig" if module else site.import_npu_name("RewriterConfig")


def as_bytes(site: Site, text: str) -> str:
    """Return code for this string as bytes, the type of protobuf's `s` fields."""
    quoted = f'"{text}"' if text.isascii() and not set(text) & set('"\\') else repr(text)
    alias = tensorflow_prefix(site).removesuffix("compat.v1.")
    return f"{alias}compat.as_bytes({quoted})" if alias else f"{quoted}.encode()"


def reserve_local_name(site: Site, at: ast.AST, wanted: str) -> str:
    """Reserve and return a name that is free in the function around `at`; outside functions free in the file."""
    function = site.source.function_around(at)
    if function is None:
        return reserve_name(site, wanted)
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Name | ast.arg)]
    used = {node.id if isinstance(node, ast.Name) else node.arg for node in nodes}
    candidates = [wanted, f"npu_{wanted}", *(f"npu_{wanted}_{number}" for number in range(2, 100))]
    # the mark reserves the name until the file is parsed again
    return next(name for name in candidates if name not in used and mark_once(site, "name", function, name))


def reserve_name(site: Site, wanted: str) -> str:
    """Reserve and return a name if nothing in the file has it, else one with the prefix `npu_`."""
    if wanted in site.file.names.used_names:
        return site.reserve_name(f"npu_{wanted}")
    site.file.names.used_names.add(wanted)
    return wanted


def npu_optimizer_statements(site: Site, config: str, at: ast.AST) -> list[str]:
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
        f"{rewrite}.remapping = {rewriter_config_name(site)}.OFF",
    ]


def starts_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement begins its line, so that lines may be inserted before it."""
    start = site.source.span(statement)[0]
    return not site.source.text[site.source.line_start(start) : start].strip(" \t\f\ufeff")


def ends_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if no semicolon follows a statement on its last line, so that lines may be inserted after it."""
    end = site.source.span(statement)[1]
    following = next(site.source.tokens_from(end), None)
    return following is None or following.text != ";" or following.start > site.source.line_stop(end)


def find_insertion_statement(site: Site, node: ast.AST) -> ast.stmt | None:
    """Return the statement before which code for an expression may be inserted.

    None in a lambda, a comprehension, a definition's header, a class body, an `elif`, or behind other code on its line.
    """
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.Lambda | Comprehension):
            return None
        if isinstance(parent, ast.stmt):
            break
    statement = site.source.statement_around(node)
    if isinstance(statement, FunctionNode | ast.ClassDef) or isinstance(site.source.parents[statement], ast.ClassDef):
        return None
    is_elif = isinstance(statement, ast.If) and site.text_of(statement).startswith("elif")
    return statement if starts_line(site, statement) and not is_elif else None


def reads_bound_name(statement: ast.stmt, value: ast.expr) -> bool:
    """Return True if the value reads a name that its statement binds: `with open(f) as g, Session(config=C(g))`."""
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(plain_name(node) in bound for node in ast.walk(value))


# ---- variables that hold a config


@dataclass(frozen=True)
class ConfigVariable:
    """Variable or attribute of self that may hold a config, with its assignments."""

    text: str  # "config", "self.config"
    parts: tuple[str, ...]  # ("config",), ("self", "config")
    assignments: list[ast.stmt]
    values: list[ast.expr]  # the value of each assignment


def find_variable(site: Site, node: ast.expr) -> ConfigVariable | None:
    """Return a name with all its assignments, or `self.x` with those in its class.

    None for any other expression, and for a name with other bindings than assignments, such as a parameter.
    """
    if isinstance(node, ast.Name):
        bindings = bindings_of(site, node)
        values = [binding for binding in bindings if isinstance(binding, ast.expr)]
        if not bindings or len(values) != len(bindings):
            return None
        return ConfigVariable(node.id, (node.id,), [site.source.statement_around(value) for value in values], values)
    if isinstance(node, ast.Attribute) and is_self_attribute(node):
        assignments = list(attribute_assignments(site, node))
        values = [assignment.value for assignment in assignments]
        return ConfigVariable(site.text_of(node), ("self", node.attr), list(assignments), values)
    return None


def attribute_assignments(site: Site, node: ast.Attribute) -> Iterator[ast.Assign]:
    """Yield the assignments to the same attribute of self in the class around a node."""
    owner = site.source.class_around(node)
    for inner in ast.walk(owner) if owner else ():
        target = sole_target(inner) if isinstance(inner, ast.Assign) else None
        if target is not None and field_path(site, target) == ("self", node.attr):
            yield inner  # type: ignore[misc]


def is_config_proto(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified_name(node.func) in CONFIG_PROTO


def field_path(site: Site, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
    """Return `config.graph_options.rewrite_options` as its parts; () for anything but a dotted name.

    A name that holds a field is replaced by that field, up to five times in a row: `custom_op` by
    `config.graph_options.rewrite_options.custom_optimizers`.
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
        prefix = field_path(site, origin, depth + 1)
        return (*prefix, *reversed(parts)) if prefix else ()
    return (node.id, *reversed(parts))


def find_adding_statement(site: Site, config: ConfigVariable, node: ast.expr) -> ast.stmt | None:
    """Return the first statement that adds a custom optimizer to the config that `node` names; None if none does."""
    return adding_statements(site).get((config.parts, variable_identity(site, config.parts, node)))


@cache_per_file
def adding_statements(site: Site) -> dict[tuple[tuple[str, ...], object], ast.stmt]:
    """Return the first statement that adds a custom optimizer, by the config's parts and `variable_identity`."""
    statements: dict[tuple[tuple[str, ...], object], ast.stmt] = {}
    for node in site.source.attributes.get("custom_optimizers", ()):
        parts = field_path(site, node)
        if parts[-3:] == ("graph_options", "rewrite_options", "custom_optimizers") and len(parts) > 3:
            config = parts[:-3]
            statements.setdefault((config, variable_identity(site, config, node)), site.source.statement_around(node))
    return statements


def has_custom_optimizer(site: Site, config: ConfigVariable, node: ast.expr) -> bool:
    """Return True if a statement adds a custom optimizer to the config, or npu_config_proto made one of its values."""
    is_made_by_vendor = any(site.values.kind(value) == "npu_config_proto" for value in config.values)
    return is_made_by_vendor or find_adding_statement(site, config, node) is not None


def is_same_variable(site: Site, config: ConfigVariable, left: ast.AST, right: ast.AST) -> bool:
    """Return True if the config's name refers to the same variable at two nodes."""
    return variable_identity(site, config.parts, left) == variable_identity(site, config.parts, right)


def variable_identity(site: Site, parts: tuple[str, ...], node: ast.AST) -> object:
    """Return a key that differs for variables of the same name in different scopes."""
    if parts[0] == "self":
        return site.source.class_around(node)
    names = site.file.names
    return id(names.lookup(".".join(parts), names.scope_of(node)))


def last_setting(site: Site, parts: tuple[str, ...], start: ast.stmt) -> ast.stmt:
    """Return the last of the consecutive statements from `start` on that set fields of a config.

    `parts` names the config or a field of it, as `field_path` does.
    """
    block, last = site.source.block_around(start), start
    for statement in block[block.index(start) + 1 :]:
        target: ast.AST | None = sole_target(statement) if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = statement.value.func
        while isinstance(target, ast.Attribute | ast.Subscript) and not field_path(site, target):
            target = target.value  # `custom_op.parameter_map` of `custom_op.parameter_map["use_off_line"].b`
        path = field_path(site, target) if target is not None else ()
        if path[: len(parts)] != parts or len(path) <= len(parts):
            break
        last = statement
    return last
