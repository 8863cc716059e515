"""Config of a TensorFlow 1 session: find it, and fill it for the NPU. Not a rule: the session rules share it."""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as proto


def report_host_session(site: Site) -> None:
    """Report a session that was told to use no GPU, and so stays off the accelerator."""
    site.manual(
        "device_count allows this session no GPU, so it is left on the host; if it should run on the accelerator, "
        "remove device_count and add NpuOptimizer to its config",
        zh="device_count 表明该会话不使用 GPU:保留在主机侧;若需在昇腾上执行,请删除 device_count 并添加 NpuOptimizer",
    )


def without_device(site: Site, value: ast.expr) -> bool:
    """Return True for a config with device_count {"GPU": 0}, in its constructor or set later."""
    config = proto.find_variable(site, value)
    if config is not None and sets_no_gpu(site, config, value):
        return True
    made = config.values if config is not None else [value]
    return bool(made) and all(proto.is_config_proto(site, node) and no_gpu(node) for node in made)


def sets_no_gpu(site: Site, config: proto.ConfigVariable, value: ast.expr) -> bool:
    """Return True if the file has `config.device_count["GPU"] = 0` for this config."""
    nodes = site.source.of_kind(ast.Assign) if "device_count" in site.source.text else []
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and is_number(node.value, 0) else None
        if isinstance(target, ast.Subscript) and is_literal_in(target.slice, "GPU"):
            same = proto.field_path(site, target.value) == (*config.parts, "device_count")
            if same and proto.same_variable(site, config, node, value):
                return True
    return False


def is_number(value: ast.expr, number: int) -> bool:
    return isinstance(value, ast.Constant) and value.value == number


def no_gpu(call: ast.expr) -> bool:
    keywords = call.keywords if isinstance(call, ast.Call) else []
    counts = [keyword.value for keyword in keywords if keyword.arg == "device_count"]
    return any(
        is_literal_in(key, "GPU") and is_number(value, 0)
        for count in counts
        if isinstance(count, ast.Dict)
        for key, value in zip(count.keys, count.values, strict=True)
    )


def is_ready(site: Site, value: ast.expr) -> bool:
    """Return True for a config that has a custom optimizer already, or gets it in the function that returns it."""
    if site.values.kind(value) == "npu_config_proto" or from_helper(site, value) or from_npu_helper(site, value):
        return True
    config = proto.find_variable(site, value)
    if config is None:
        return False
    if config.values and all(from_helper(site, item) or from_npu_helper(site, item) for item in config.values):
        return True
    return proto.carries_npu_optimizer(site, config, value) or is_given_to_helper(site, config, value)


def from_npu_helper(site: Site, value: ast.AST) -> bool:
    """Return True for a call of a project's function that adds NpuOptimizer itself, as migrated code has it."""
    helpers = site.work.project.npu_helpers
    if not helpers or not isinstance(value, ast.Call):
        return False
    name = site.qualified(value.func)
    method = f".{value.func.attr}" if name is None and isinstance(value.func, ast.Attribute) else ""
    return name in helpers or method in helpers


def is_given_to_helper(site: Site, config: proto.ConfigVariable, value: ast.expr) -> bool:
    """Return True if the config is an argument of a project's function that adds NpuOptimizer: `add_npu(config)`."""
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
    """Return True for a call of a project's function that returns a ConfigProto: session_config_helper edits it."""
    name = site.qualified(value.func) if isinstance(value, ast.Call) else None
    project = site.work.project
    return bool(name) and name in project.config_helpers and project.returns.get(name or "") == "config_proto"


def fill_value(site: Site, value: ast.expr) -> None:
    """Fill a given config where it is assigned, else in front of its statement, else by the vendor's helper."""
    explicit = site.options.style == "explicit"
    config = proto.find_variable(site, value) if explicit else None
    if (
        config
        and config.values
        and all(can_fill(site, *pair) for pair in zip(config.assigned, config.values, strict=True))
    ):
        for assigned in config.assigned:
            fill_behind(site, config, assigned)
        report_configured(site)
    elif explicit and proto.is_config_proto(site, value) and can_hoist(site, value):
        location = site.source.statement(value)
        name = proto.local_name(site, location, "config")
        site.edit.insert_before(
            location, [f"{name} = {site.text(value)}", *proto.fill_statements(site, name, location)]
        )
        site.edit.replace(*site.source.span(value), name)  # its comments went along
        report_configured(site)
    else:
        site.edit.node(value, wrap_config(site, site.text(value)))
        report_configured(site)


def can_fill(site: Site, assigned: ast.stmt, value: ast.expr) -> bool:
    """Return True for a plain `config = tf.ConfigProto(…)` on lines of its own, outside a class body."""
    plain = isinstance(assigned, ast.Assign | ast.AnnAssign) and assigned.value is value
    lines = proto.starts_line(site, assigned) and proto.ends_line(site, assigned)
    in_class_body = isinstance(site.source.parents[assigned], ast.ClassDef)
    return plain and lines and not in_class_body and proto.is_config_proto(site, value)


def can_hoist(site: Site, value: ast.expr) -> bool:
    location = proto.hoisting_place(site, value)
    return location is not None and not proto.binds_what_it_uses(location, value)


def fill_behind(site: Site, config: proto.ConfigVariable, assigned: ast.stmt) -> None:
    if ("filled", assigned) in site.work.seen:
        return
    site.work.seen[("filled", assigned)] = None
    last = proto.last_setting(site, config, assigned)
    if not proto.ends_line(site, last):
        last = assigned
    site.edit.insert_after(last, proto.fill_statements(site, config.text, assigned))


def new_config(site: Site) -> str:
    """Return the expression for a missing config: a variable filled in front of the statement, or the helper's call."""
    location = proto.hoisting_place(site, site.node) if site.options.style == "explicit" else None
    if location is None:
        return wrap_config(site, "")
    name = made_before(site, location)
    if name is None:
        name = proto.local_name(site, location, "config")
        made = f"{name} = {proto.tensorflow_name(site, 'ConfigProto')}()"
        site.edit.insert_before(location, [made, *proto.fill_statements(site, name, location)])
        site.work.answers.setdefault(("configs", site.source.function(location)), []).append((location, name))
    return name


def made_before(site: Site, statement: ast.stmt) -> str | None:
    """Return the variable of a config that was written earlier in the function and is certain to be assigned here."""
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
            "npu_config_proto also switches Grappler's memory_optimization off; statements that set the config "
            "explicitly leave it on",
            zh="npu_config_proto 还会关闭 Grappler 的 memory_optimization;显式写法则保持默认开启",
        )
    return f"{site.need('npu_config_proto')}({f'config_proto={text}' if text else ''})"


def report_configured(site: Site) -> None:
    site.changed(
        "the session carries NpuOptimizer and has remapping off: its graph runs on the accelerator",
        zh="会话已添加 NpuOptimizer 并关闭 remapping:计算图在昇腾 AI 处理器上执行",
    )
