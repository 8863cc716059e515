"""The config of a TensorFlow 1 session: finding the one that is given, and filling it for the NPU."""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_text
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as proto


def say_off(site: Site) -> None:
    site.manual(
        "device_count says that there is no GPU for this session: it was meant to stay off the accelerator, and so it "
        "does; if it should run there, remove device_count and give its config NpuOptimizer",
        zh="device_count 表明该会话不使用 GPU:保留在主机侧;若需在昇腾上执行,请删除 device_count 并添加 NpuOptimizer",
    )


def without_device(site: Site, value: ast.expr) -> bool:
    """`tf.ConfigProto(device_count={"GPU": 0})`, here or where the name was assigned."""
    config = proto.held(site, value)
    if config is not None and set_to_none(site, config, value):
        return True
    made = config.values if config is not None else [value]
    return bool(made) and all(proto.is_config_proto(site, node) and no_gpu(node) for node in made)


def set_to_none(site: Site, config: proto.Held, value: ast.expr) -> bool:
    """`config.device_count["GPU"] = 0`."""
    nodes = site.source.of_kind(ast.Assign) if "device_count" in site.source.text else []
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and is_number(node.value, 0) else None
        if isinstance(target, ast.Subscript) and is_text(target.slice, "GPU"):
            same = proto.chain(site, target.value) == (*config.parts, "device_count")
            if same and proto.same_variable(site, config, node, value):
                return True
    return False


def is_number(value: ast.expr, number: int) -> bool:
    return isinstance(value, ast.Constant) and value.value == number


def no_gpu(call: ast.expr) -> bool:
    words = call.keywords if isinstance(call, ast.Call) else []
    counts = [text.value for text in words if text.arg == "device_count"]
    return any(
        is_text(key, "GPU") and is_number(value, 0)
        for count in counts
        if isinstance(count, ast.Dict)
        for key, value in zip(count.keys, count.values, strict=True)
    )


def is_ready(site: Site, value: ast.expr) -> bool:
    """Return True if the value is the accelerator's already, or is made so in the helper that returns it."""
    if site.values.kind(value) == "npu_config_proto" or from_helper(site, value) or from_npu_helper(site, value):
        return True
    config = proto.held(site, value)
    if config is None:
        return False
    if config.values and all(from_helper(site, item) or from_npu_helper(site, item) for item in config.values):
        return True
    return proto.carries_npu_optimizer(site, config, value) or is_given_to_helper(site, config, value)


def from_npu_helper(site: Site, value: ast.AST) -> bool:
    """A function of the project that adds NpuOptimizer itself, as in code that was migrated before."""
    helpers = site.work.project.npu_helpers
    if not helpers or not isinstance(value, ast.Call):
        return False
    name = site.qualified(value.func)
    method = f".{value.func.attr}" if name is None and isinstance(value.func, ast.Attribute) else ""
    return name in helpers or method in helpers


def is_given_to_helper(site: Site, config: proto.Held, value: ast.expr) -> bool:
    """`add_npu(config)` as a statement of its own, which fills the config that it is given."""
    if not site.work.project.npu_helpers:
        return False
    for call in site.source.of_kind(ast.Call):
        if isinstance(call, ast.Call) and from_npu_helper(site, call):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            same = [node for node in given if ast.unparse(node) == config.text]
            if any(proto.same_variable(site, config, item, value) for item in same):
                return True
    return False


def from_helper(site: Site, value: ast.expr) -> bool:
    """A function of the project that gives a ConfigProto is edited itself, once (session_config_helper)."""
    name = site.qualified(value.func) if isinstance(value, ast.Call) else None
    project = site.work.project
    return bool(name) and name in project.config_helpers and project.returns.get(name or "") == "config_proto"


def fill_value(site: Site, value: ast.expr) -> None:
    """A config that is there: filled where it is assigned, taken out of the expression, or wrapped."""
    explicit = site.options.style == "explicit"
    config = proto.held(site, value) if explicit else None
    if config and config.values and all(can_fill(site, *pair) for pair in zip(*pairs(config), strict=True)):
        for assigned in config.assigned:
            fill_behind(site, config, assigned)
        say_configured(site)
    elif explicit and proto.is_config_proto(site, value) and can_hoist(site, value):
        location = site.source.statement(value)
        name = proto.local_name(site, location, "config")
        site.edit.insert_before(location, [f"{name} = {site.text(value)}", *proto.filling(site, name, location)])
        site.edit.replace(*site.source.span(value), name)  # its comments went along
        say_configured(site)
    else:
        site.edit.node(value, wrap_config(site, site.text(value)))
        say_configured(site)


def pairs(config: proto.Held) -> tuple[list[ast.stmt], list[ast.expr]]:
    return config.assigned, config.values


def can_fill(site: Site, assigned: ast.stmt, value: ast.expr) -> bool:
    """A plain `config = tf.ConfigProto(…)` on lines of its own."""
    plain = isinstance(assigned, ast.Assign | ast.AnnAssign) and assigned.value is value
    lines = proto.starts_line(site, assigned) and proto.ends_line(site, assigned)
    inside = isinstance(site.source.parents[assigned], ast.ClassDef)
    return plain and lines and not inside and proto.is_config_proto(site, value)


def can_hoist(site: Site, value: ast.expr) -> bool:
    location = proto.hoisting_place(site, value)
    return location is not None and not proto.binds_what_it_uses(location, value)


def fill_behind(site: Site, config: proto.Held, assigned: ast.stmt) -> None:
    if ("filled", assigned) in site.work.seen:
        return
    site.work.seen[("filled", assigned)] = None
    last = proto.last_setting(site, config, assigned)
    if not proto.ends_line(site, last):
        last = assigned
    site.edit.insert_after(last, proto.filling(site, config.text, assigned))


def new_config(site: Site) -> str:
    """Return what to write where there is no config: the name of one made in front, or the helper's call."""
    location = proto.hoisting_place(site, site.node) if site.options.style == "explicit" else None
    if location is None:
        return wrap_config(site, "")
    name = made_before(site, location)
    if name is None:
        name = proto.local_name(site, location, "config")
        made = f"{name} = {proto.tensorflow_name(site, 'ConfigProto')}()"
        site.edit.insert_before(location, [made, *proto.filling(site, name, location)])
        site.work.answers.setdefault(("configs", site.source.function(location)), []).append((location, name))
    return name


def made_before(site: Site, statement: ast.stmt) -> str | None:
    """A config made for an earlier session of the same function that surely has run by now."""
    above = [statement, *(node for node in site.source.ancestors(statement) if isinstance(node, ast.stmt))]
    for made, name in site.work.answers.get(("configs", site.source.function(statement)), ()):
        block = site.source.block(made)
        if any(parent in block and block.index(parent) >= block.index(made) for parent in above):
            return str(name)
    return None


def wrap_config(site: Site, text: str) -> str:
    if ("wrapper",) not in site.work.seen:
        site.work.seen[("wrapper",)] = None
        site.advice(
            "npu_config_proto also switches Grappler's memory_optimization off; statements of one's own leave it on",
            zh="npu_config_proto 还会关闭 memory_optimization;显式写法则保持默认开启",
        )
    return f"{site.need('npu_config_proto')}({f'config_proto={text}' if text else ''})"


def say_configured(site: Site) -> None:
    site.changed(
        "the session carries NpuOptimizer and has remapping off: its graph runs on the accelerator",
        zh="会话已添加 NpuOptimizer 并关闭 remapping:计算图在昇腾 AI 处理器上执行",
    )
