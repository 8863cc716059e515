"""Statements that make a ConfigProto run on the accelerator, their position, and whether they are there already.

Not a rule: the session, Keras and life cycle rules share it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.imports import REGISTERS
from viaduct.migration.names import Comprehension
from viaduct.migration.rule import Site, answer_once

REWRITER = "tensorflow.core.protobuf.rewriter_config_pb2"
CONFIG_PROTO = ("tensorflow.ConfigProto", "tensorflow.core.protobuf.config_pb2.ConfigProto")
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
COMPATIBLE = re.compile(r"^import tensorflow\.compat\.v1 as (\w+)", re.MULTILINE)
DOTTED = re.compile(r"[A-Za-z_][\w.]*")


# ---- spelling


def tensorflow_prefix(site: Site) -> str:
    """Return TensorFlow's prefix at the site, else in the file: `tf.`, `tf.compat.v1.`; "" if there is none."""
    if isinstance(site.node, ast.Call) and site.name.startswith("tensorflow."):
        text, remainder = site.text(site.node.func), site.name.removeprefix("tensorflow.")
        if text.endswith("." + remainder) and DOTTED.fullmatch(text):
            return text[: -len(remainder)]
    first = COMPATIBLE.search(site.source.text)
    alias = first.group(1) if first else site.work.names.local("tensorflow")
    if alias is None:
        return ""
    return f"{alias}.compat.v1." if f"{alias}.compat.v1." in site.source.text else f"{alias}."


def tensorflow_name(site: Site, name: str) -> str:
    """Return `tf.ConfigProto` as this file would write it; import it by name where the file has no `tf`."""
    prefix = tensorflow_prefix(site)
    return prefix + name if prefix else site.work.need("tensorflow", name)


def module_name(site: Site, module: str, alias: str = "") -> str:
    """Return the local name of a whole module; add its import if the file has none."""
    imported = site.work.names.local(module)
    if imported is not None:
        return imported
    local = alias or module
    local = local if local not in site.work.names.used_names else site.free_name(f"npu_{local}")
    site.work.needed[local] = module
    site.work.names.used_names.add(local)
    site.work.names.added[local] = module
    return local


def rewriter_config(site: Site) -> str:
    """Return `RewriterConfig`, through the module rewriter_config_pb2 where the file imports that instead."""
    module = site.work.names.local(REWRITER) if "rewriter_config_pb2" in site.source.text else None
    return f"{module}.RewriterConfig" if module else site.need("RewriterConfig")


def as_bytes(site: Site, text: str) -> str:
    """Return an expression of a string as bytes, for a field of bytes."""
    quoted = f'"{text}"' if text.isascii() and not set(text) & set('"\\') else repr(text)
    alias = tensorflow_prefix(site).removesuffix("compat.v1.")
    return f"{alias}compat.as_bytes({quoted})" if alias else f"{quoted}.encode()"


def local_name(site: Site, at: ast.AST, wanted: str) -> str:
    """Return a name that is free in the function around `at`, or in the whole file at module level, and take it."""
    function = site.source.function(at)
    if function is None:
        return wanted if take_name(site, wanted) else site.free_name(f"npu_{wanted}")
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    candidates = [wanted, f"npu_{wanted}", *(f"npu_{wanted}_{number}" for number in range(2, 100))]
    seen = site.work.seen
    name = next(
        candidate for candidate in candidates if candidate not in taken and ("name", function, candidate) not in seen
    )
    site.work.seen[("name", function, name)] = None
    return name


def take_name(site: Site, wanted: str) -> bool:
    """Return True if nothing in the file has the name; it counts as used from now on."""
    free = wanted not in site.work.names.used_names
    site.work.names.used_names.add(wanted)
    return free


# ---- statements


def fill_statements(site: Site, config: str, at: ast.AST) -> list[str]:
    """Return the statements that make a session with this ConfigProto run on the accelerator.

    They need an import of npu_bridge, which registers NpuOptimizer.
    """
    site.work.effects.add(REGISTERS)
    custom = local_name(site, at, "custom_op")
    rewrite = f"{config}.graph_options.rewrite_options"
    return [
        f"{custom} = {rewrite}.custom_optimizers.add()",
        f'{custom}.name = "NpuOptimizer"',
        f'{custom}.parameter_map["use_off_line"].b = True',
        f"{rewrite}.remapping = {rewriter_config(site)}.OFF",
    ]


def starts_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if nothing stands before a statement on its line, so that lines may be put before it."""
    start = site.source.span(statement)[0]
    return not site.source.text[site.source.line_start(start) : start].strip(" \t\f\ufeff")


def ends_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if no semicolon follows a statement on its line, so that lines may be put behind it."""
    end = site.source.span(statement)[1]
    following = next(site.source.tokens_from(end), None)
    return following is None or following.text != ";" or following.start > site.source.line_stop(end)


def hoisting_place(site: Site, node: ast.AST) -> ast.stmt | None:
    """Return the statement before which statements for an expression may be put.

    None where they would run at another time or bind an attribute of a class, and where no line can be put before it:
    an `elif`, a statement behind a semicolon.
    """
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.Lambda | Comprehension):
            return None
        if isinstance(parent, ast.stmt):
            break
    statement = site.source.statement(node)
    if isinstance(statement, DEFINITION) or isinstance(site.source.parents[statement], ast.ClassDef):
        return None  # a default, a decorator, a base; a name that would become an attribute of the class
    return statement if starts_line(site, statement) and not is_elif(site, statement) else None


def is_elif(site: Site, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and site.text(statement).startswith("elif")


def binds_what_it_uses(statement: ast.stmt, value: ast.expr) -> bool:
    """Return True if the value reads a name that its own statement binds.

    `with open(f) as g, Session(config=C(g))` is an example.
    """
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(value))


# ---- variables that hold a config


@dataclass(frozen=True)
class ConfigVariable:
    """A variable or an attribute of self that is used as a config, with all its assignments."""

    text: str
    parts: tuple[str, ...]  # of the text: ("config",), ("self", "config")
    assigned: list[ast.stmt]
    values: list[ast.expr]


def find_variable(site: Site, node: ast.expr) -> ConfigVariable | None:
    """Return a name or `self.x` with all its assignments.

    None for any other expression, and for a name that is also bound otherwise, as a parameter is.
    """
    if isinstance(node, ast.Name):
        bound = site.work.names.lookup(node.id, site.work.names.scope_of(node))
        values = [binding for binding in bound or [] if isinstance(binding, ast.expr)]
        if not bound or len(values) != len(bound):
            return None
        return ConfigVariable(node.id, (node.id,), [site.source.statement(value) for value in values], values)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        assigned = list(attribute_assignments(site, node))
        values = [inner.value for inner in assigned]
        return ConfigVariable(site.text(node), ("self", node.attr), list(assigned), values)
    return None


def attribute_assignments(site: Site, node: ast.Attribute) -> Iterator[ast.Assign]:
    """Yield the assignments to the same attribute of self in the class around a node."""
    owner = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    for inner in ast.walk(owner) if owner else ():
        if (
            isinstance(inner, ast.Assign)
            and len(inner.targets) == 1
            and field_path(site, inner.targets[0]) == ("self", node.attr)
        ):
            yield inner


def is_config_proto(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified(node.func) in CONFIG_PROTO


def field_path(site: Site, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
    """Return `config.graph_options.rewrite_options` as its parts, and () for anything but a dotted name.

    A name that was assigned a field of a config, or an entry added to one, is spelled out: `custom_op` stands for
    `config.graph_options.rewrite_options.custom_optimizers`.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    origin = site.values.origin(node)
    if isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute) and origin.func.attr == "add":
        origin = origin.func.value
    if isinstance(origin, ast.Attribute) and depth < 5:
        before = field_path(site, origin, depth + 1)
        return (*before, *reversed(parts)) if before else ()
    return (node.id, *reversed(parts))


def adding_statement(site: Site, config: ConfigVariable, node: ast.expr) -> ast.stmt | None:
    """Return the first statement that adds a custom optimizer to this very config, if there is one."""
    return adding_statements(site).get((config.parts, variable_of(site, config.parts, node)))


@answer_once
def adding_statements(site: Site) -> dict[tuple[tuple[str, ...], object], ast.stmt]:
    """Return, for each config, the first statement that adds a custom optimizer to it."""
    found: dict[tuple[tuple[str, ...], object], ast.stmt] = {}
    for node in site.source.attributes.get("custom_optimizers", ()):
        parts = field_path(site, node)
        if parts[-3:] == ("graph_options", "rewrite_options", "custom_optimizers") and len(parts) > 3:
            config = parts[:-3]
            found.setdefault((config, variable_of(site, config, node)), site.source.statement(node))
    return found


def carries_npu_optimizer(site: Site, config: ConfigVariable, node: ast.expr) -> bool:
    """Return True if a statement adds a custom optimizer, whichever it is, to this very config.

    True as well if the config comes from the vendor's npu_config_proto.
    """
    made = any(site.values.kind(value) == "npu_config_proto" for value in config.values)
    return made or adding_statement(site, config, node) is not None


def same_variable(site: Site, config: ConfigVariable, left: ast.AST, right: ast.AST) -> bool:
    return variable_of(site, config.parts, left) == variable_of(site, config.parts, right)


def variable_of(site: Site, parts: tuple[str, ...], node: ast.AST) -> object:
    """Return what tells a variable from others of its name: the class of `self`, else the list of its bindings."""
    if parts[0] == "self":
        return next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    names = site.work.names
    return id(names.lookup(".".join(parts), names.scope_of(node)))


def last_setting(site: Site, config: ConfigVariable, assigned: ast.stmt) -> ast.stmt:
    """Return the last of the statements right behind an assignment that set or call fields of the config."""
    block, last = site.source.block(assigned), assigned
    for statement in block[block.index(assigned) + 1 :]:
        target: ast.AST | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = statement.value.func
        parts = field_path(site, target) if isinstance(target, ast.Attribute) else ()
        if parts[: len(config.parts)] != config.parts or len(parts) <= len(config.parts):
            break
        last = statement
    return last
