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
    """`tf.ConfigProto` as this file would write it; imported by name where the file has no `tf`."""
    prefix = tensorflow_prefix(site)
    return prefix + name if prefix else site.work.need("tensorflow", name)


def module_name(site: Site, module: str, alias: str = "") -> str:
    """The local name of a whole module, which is imported if it is not."""
    known = site.work.names.local(module)
    if known is not None:
        return known
    local = alias or module
    local = local if local not in site.work.names.used_names else site.free_name(f"npu_{local}")
    site.work.needed[local] = module
    site.work.names.used_names.add(local)
    site.work.names.added[local] = module
    return local


def rewriter_config(site: Site) -> str:
    """`RewriterConfig`, through the module rewriter_config_pb2 where the file imports that instead."""
    module = site.work.names.local(REWRITER) if "rewriter_config_pb2" in site.source.text else None
    return f"{module}.RewriterConfig" if module else site.need("RewriterConfig")


def as_bytes(site: Site, text: str) -> str:
    """A string for a field of bytes."""
    quoted = f'"{text}"' if text.isascii() and not set(text) & set('"\\') else repr(text)
    alias = tensorflow_prefix(site).removesuffix("compat.v1.")
    return f"{alias}compat.as_bytes({quoted})" if alias else f"{quoted}.encode()"


def local_name(site: Site, at: ast.AST, wanted: str) -> str:
    """A name that is free in the function around `at`, or in the whole file at module level."""
    function = site.source.function(at)
    if function is None:
        return wanted if fresh(site, wanted) else site.free_name(f"npu_{wanted}")
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    candidates = [wanted, f"npu_{wanted}", *(f"npu_{wanted}_{number}" for number in range(2, 100))]
    seen = site.work.seen
    name = next(
        candidate for candidate in candidates if candidate not in taken and ("name", function, candidate) not in seen
    )
    site.work.seen[("name", function, name)] = None
    return name


def fresh(site: Site, wanted: str) -> bool:
    """Takes the name if nothing in the file has it."""
    free = wanted not in site.work.names.used_names
    site.work.names.used_names.add(wanted)
    return free


# ---- statements


def filling(site: Site, config: str, at: ast.AST) -> list[str]:
    """The statements that make a ConfigProto the accelerator's; NpuOptimizer exists once npu_bridge is imported."""
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
    """Return True if nothing stands before a statement on its line, so that lines may be put before or behind it."""
    start = site.source.span(statement)[0]
    return not site.source.text[site.source.line_start(start) : start].strip(" \t\f\ufeff")


def ends_line(site: Site, statement: ast.stmt) -> bool:
    end = site.source.span(statement)[1]
    following = next(site.source.tokens_from(end), None)
    return following is None or following.text != ";" or following.start > site.source.line_stop(end)


def hoisting_place(site: Site, node: ast.AST) -> ast.stmt | None:
    """The statement before which new ones may be put for an expression; None where they would run at another time."""
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
    """Return True if the expression needs a name that its own statement binds: `with open(f) as g,
    Session(config=C(g))`.
    """
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(value))


# ---- what a config is


@dataclass(frozen=True)
class Held:
    """A variable or an attribute that holds a ConfigProto: its text and the statements that assign it."""

    text: str
    parts: tuple[str, ...]
    assigned: list[ast.stmt]
    values: list[ast.expr]


def held(site: Site, node: ast.expr) -> Held | None:
    """All assignments of a name or of `self.x`; None if it is bound in some other way too."""
    if isinstance(node, ast.Name):
        bound = site.work.names.lookup(node.id, site.work.names.scope_of(node))
        values = [what for what in bound or [] if isinstance(what, ast.expr)]
        if not bound or len(values) != len(bound):
            return None
        return Held(node.id, (node.id,), [site.source.statement(value) for value in values], values)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        assigned = list(attribute_assignments(site, node))
        return Held(site.text(node), ("self", node.attr), list(assigned), [inner.value for inner in assigned])
    return None


def attribute_assignments(site: Site, node: ast.Attribute) -> Iterator[ast.Assign]:
    owner = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    for inner in ast.walk(owner) if owner else ():
        if (
            isinstance(inner, ast.Assign)
            and len(inner.targets) == 1
            and chain(site, inner.targets[0]) == ("self", node.attr)
        ):
            yield inner


def is_config_proto(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified(node.func) in CONFIG_PROTO


def chain(site: Site, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
    """`config.graph_options.rewrite_options` as its parts; a name that stands for part of a proto is spelled out."""
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
        before = chain(site, origin, depth + 1)
        return (*before, *reversed(parts)) if before else ()
    return (node.id, *reversed(parts))


def adding_statement(site: Site, config: Held, node: ast.expr) -> ast.stmt | None:
    """The statement that adds a custom optimizer to this very config."""
    return adding_statements(site).get((config.parts, variable_of(site, config.parts, node)))


@answer_once
def adding_statements(site: Site) -> dict[tuple[tuple[str, ...], object], ast.stmt]:
    """Return, for each config, the first statement that adds a custom optimizer to it."""
    found: dict[tuple[tuple[str, ...], object], ast.stmt] = {}
    for node in site.source.attributes.get("custom_optimizers", ()):
        parts = chain(site, node)
        if parts[-3:] == ("graph_options", "rewrite_options", "custom_optimizers") and len(parts) > 3:
            config = parts[:-3]
            found.setdefault((config, variable_of(site, config, node)), site.source.statement(node))
    return found


def carries_npu_optimizer(site: Site, config: Held, node: ast.expr) -> bool:
    """Return True if some statement adds a custom optimizer to this very config."""
    made = any(site.values.kind(value) == "npu_config_proto" for value in config.values)
    return made or adding_statement(site, config, node) is not None


def same_variable(site: Site, config: Held, left: ast.AST, right: ast.AST) -> bool:
    return variable_of(site, config.parts, left) == variable_of(site, config.parts, right)


def variable_of(site: Site, parts: tuple[str, ...], node: ast.AST) -> object:
    """Return what tells a variable from others of its name: the class of `self`, else what is bound to it there."""
    if parts[0] == "self":
        return next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
    names = site.work.names
    return id(names.lookup(".".join(parts), names.scope_of(node)))


def last_setting(site: Site, config: Held, assigned: ast.stmt) -> ast.stmt:
    """The last of the statements right behind an assignment that only set fields of the config."""
    block, last = site.source.block(assigned), assigned
    for statement in block[block.index(assigned) + 1 :]:
        target: ast.AST | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = statement.value.func
        parts = chain(site, target) if isinstance(target, ast.Attribute) else ()
        if parts[: len(config.parts)] != config.parts or len(parts) <= len(config.parts):
            break
        last = statement
    return last
