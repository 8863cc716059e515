"""Config of a TensorFlow 1 session: tests whether it has NpuOptimizer, and edits that add it."""

from __future__ import annotations

import ast
from functools import partial

from viaduct.migration.lookups import argument_values, keyword_value, mark_once
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as config_proto
from viaduct.migration.rules.tf1._insertion import ends_line, find_insertion_statement, reads_bound_name, starts_line
from viaduct.migration.rules.tf1._tensorflow_names import render_tensorflow_name, reserve_local_name


def report_host_session(site: Site) -> None:
    """Report a session that stays on the host, since its config allows no GPU."""
    site.request_review(
        "device_count allows this session no GPU, so it stays on the host; if it should run on the accelerator, "
        "remove device_count and add NpuOptimizer to its config",
        zh="device_count 表明该会话不使用 GPU:保留在主机侧;若需在昇腾上执行,请删除 device_count 并添加 NpuOptimizer",
    )


def allows_no_gpu(site: Site, value: ast.expr) -> bool:
    """Return True for a config with device_count {"GPU": 0}, set by its constructor or an assignment."""
    config = config_proto.find_config_variable(site, value)
    if config is not None and sets_no_gpu(site, config, value):
        return True
    values = config.values if config is not None else [value]
    return bool(values) and all(
        config_proto.is_config_proto(site, node) and is_made_without_gpu(node) for node in values
    )


def sets_no_gpu(site: Site, config: config_proto.ConfigVariable, value: ast.expr) -> bool:
    """Return True if the file has `config.device_count["GPU"] = 0` for this config."""
    for node in site.source.nodes_of_type(ast.Assign) if "device_count" in site.source.text else []:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and is_literal_in(target.slice, "GPU") and is_literal_in(node.value, 0):
            is_field = config_proto.get_field_path(site, target.value) == (*config.parts, "device_count")
            if is_field and config_proto.is_same_variable(site, config, node, value):
                return True
    return False


def is_made_without_gpu(config: ast.expr) -> bool:
    """Return True for `tf.ConfigProto(device_count={"GPU": 0})`."""
    counts = keyword_value(config, "device_count") if isinstance(config, ast.Call) else None
    pairs = zip(counts.keys, counts.values, strict=True) if isinstance(counts, ast.Dict) else ()
    return any(is_literal_in(key, "GPU") and is_literal_in(value, 0) for key, value in pairs)


def has_npu_optimizer(site: Site, value: ast.expr) -> bool:
    """Return True for a config with a custom optimizer, taken for NpuOptimizer, also from a function of the project."""
    if site.values.kind(value) == "npu_config_proto" or is_from_helper(site, value):
        return True
    config = config_proto.find_config_variable(site, value)
    if config is None:
        return False
    if config.values and all(is_from_helper(site, assigned) for assigned in config.values):
        return True
    return config_proto.has_custom_optimizer(site, config, value) or is_passed_to_npu_helper(site, config, value)


def is_from_helper(site: Site, value: ast.expr) -> bool:
    """Return True for a call of a project's function that returns a config with NpuOptimizer, now or after its edit."""
    return is_from_config_helper(site, value) or is_npu_helper_call(site, value)


def is_npu_helper_call(site: Site, value: ast.AST) -> bool:
    """Return True for a call of a project's function that adds NpuOptimizer itself, as migrated code does."""
    helpers = site.file.project.npu_optimizer_functions  # qualified names, and ".name" for methods
    if not helpers or not isinstance(value, ast.Call):
        return False
    name = site.qualified_name(value.func)
    method = f".{value.func.attr}" if name is None and isinstance(value.func, ast.Attribute) else ""
    return name in helpers or method in helpers


def is_passed_to_npu_helper(site: Site, config: config_proto.ConfigVariable, value: ast.expr) -> bool:
    """Return True if the config is an argument of a project's function that adds NpuOptimizer: `add_npu(config)`."""
    if not site.file.project.npu_optimizer_functions:
        return False
    calls = [call for call in site.source.nodes_of_type(ast.Call) if is_npu_helper_call(site, call)]
    arguments = [argument for call in calls for argument in argument_values(call)]
    same_text = [argument for argument in arguments if ast.unparse(argument) == config.text]
    return any(config_proto.is_same_variable(site, config, argument, value) for argument in same_text)


def is_from_config_helper(site: Site, value: ast.expr) -> bool:
    """Return True for a call of a project's function that session_config_helper edits: it returns a ConfigProto."""
    name = site.qualified_name(value.func) if isinstance(value, ast.Call) else None
    project = site.file.project
    return (
        bool(name)
        and name in project.session_config_functions
        and project.result_kinds.get(name or "") == "config_proto"
    )


def add_npu_optimizer(site: Site, value: ast.expr) -> None:
    """Add NpuOptimizer to a config after its assignment, else before its use, else by Ascend's npu_config_proto."""
    is_explicit = site.options.style == "explicit"
    config = config_proto.find_config_variable(site, value) if is_explicit else None
    if config and config.values and all(map(partial(can_add_after, site), config.assignments, config.values)):
        for assignment in config.assignments:
            add_after(site, config, assignment)
    elif is_explicit and config_proto.is_config_proto(site, value) and can_compute_before(site, value):
        location = site.source.statement_around(value)
        name = reserve_local_name(site, location, "config")
        lines = [f"{name} = {site.text_of(value)}", *config_proto.render_npu_optimizer(site, name, location)]
        site.edit.insert_before(location, lines)
        site.edit.replace(*site.source.span(value), name)  # the comments in the value have moved with it
    else:
        site.edit.replace_node(value, wrap_config(site, site.text_of(value)))
    report_configured(site)


def can_add_after(site: Site, assignment: ast.stmt, value: ast.expr) -> bool:
    """Return True for `config = tf.ConfigProto(…)` on separate lines, outside a class body."""
    is_complete_value = isinstance(assignment, ast.Assign | ast.AnnAssign) and assignment.value is value
    has_own_lines = starts_line(site, assignment) and ends_line(site, assignment)
    in_class_body = isinstance(site.source.parents[assignment], ast.ClassDef)
    return is_complete_value and has_own_lines and not in_class_body and config_proto.is_config_proto(site, value)


def can_compute_before(site: Site, value: ast.expr) -> bool:
    """Return True if the value may be computed before the statement that holds it."""
    location = find_insertion_statement(site, value)
    return location is not None and not reads_bound_name(location, value)


def add_after(site: Site, config: config_proto.ConfigVariable, assignment: ast.stmt) -> None:
    """Add NpuOptimizer to a config, once, after the statements that set its other fields."""
    if mark_once(site, "filled", assignment):
        last = config_proto.find_last_setting(site, config.parts, assignment)
        last = last if ends_line(site, last) else assignment
        site.edit.insert_after(last, config_proto.render_npu_optimizer(site, config.text, assignment))


def create_config(site: Site) -> str:
    """Return the code of a new config: a variable that is set before the statement, or a call of npu_config_proto."""
    location = find_insertion_statement(site, site.node) if site.options.style == "explicit" else None
    if location is None:
        return wrap_config(site, "")
    name = find_inserted_config(site, location)
    if name is None:
        name = reserve_local_name(site, location, "config")
        assignment = f"{name} = {render_tensorflow_name(site, 'ConfigProto')}()"
        site.edit.insert_before(location, [assignment, *config_proto.render_npu_optimizer(site, name, location)])
        configs = site.file.cache.setdefault(("configs", site.source.function_around(location)), [])
        configs.append((location, name))  # for find_inserted_config
    return name


def find_inserted_config(site: Site, statement: ast.stmt) -> str | None:
    """Return the variable of a config that `create_config` has inserted before the statement in the same function."""
    parents = [statement, *(node for node in site.source.ancestors(statement) if isinstance(node, ast.stmt))]
    for location, name in site.file.cache.get(("configs", site.source.function_around(statement)), ()):
        block = site.source.block_around(location)
        if any(parent in block and block.index(parent) >= block.index(location) for parent in parents):
            return str(name)
    return None


def wrap_config(site: Site, text: str) -> str:
    """Return a call of npu_config_proto for the config in `text`, or for a new one; advise on its side effect once."""
    if mark_once(site, "wrapper"):
        site.advise(
            "npu_config_proto also switches Grappler's memory_optimization off; statements that set the config "
            "explicitly leave it on",
            zh="npu_config_proto 还会关闭 Grappler 的 memory_optimization;显式写法则保持默认开启",
        )
    return f"{site.import_npu_name('npu_config_proto')}({f'config_proto={text}' if text else ''})"


def report_configured(site: Site) -> None:
    site.report_change(
        "the session has NpuOptimizer and remapping off: its graph runs on the accelerator",
        zh="会话已添加 NpuOptimizer 并关闭 remapping:计算图在昇腾 AI 处理器上执行",
    )
