"""Switch off XLA, TensorFlow's compiler, and remapping, a graph optimization.

     import tensorflow as tf
     config = tf.ConfigProto()
    -config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    +config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF

The NPU's own engine compiles the graph; XLA would take nodes away from it. The rule also edits
`tf.config.optimizer.set_jit` and `jit_scope`. Remapping, a pass of TensorFlow's graph optimizer Grappler, is switched
off where a statement switches it on: by an attribute of rewrite options, or a keyword of RewriterConfig. Other settings
that disturb the device get advice: Grappler's other passes, model pruning and soft placement should stay on.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.limits import REMAPPING_FUSES
from viaduct.migration.lookups import plain_name
from viaduct.migration.predicates import is_constant, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as config_proto
from viaduct.migration.rules.tf1._tensorflow_names import render_rewriter_config, render_tensorflow_name

# After session_graph_options, which wraps the options in helpers that switch XLA off.
rule = Rule(__name__, target_needs="compiler", spec_rows=("S5", "S12"), after=("session_graph_options",))

JIT_SCOPES = ("tensorflow.xla.experimental.jit_scope", "tensorflow.contrib.compiler.jit.experimental_jit_scope")
NEEDED_PASSES = {"constant_folding", "layout_optimizer"} | {
    f"{name}_optimization" for name in ("function", "shape", "arithmetic", "loop", "dependency", "memory")
}
REWRITER = "tensorflow.core.protobuf.rewriter_config_pb2.RewriterConfig"
REWRITER_OFF = 2  # value of RewriterConfig.OFF
REMAPPING_TEXT = re.compile(r"\bremapping\s*[:=]\s*(?!OFF|2\b)")  # any value but OFF


@rule.node(
    ast.Assign,
    only_if_file_contains=("global_jit_level", "rewrite_options", "_placement", "_optimization", "remapping"),
)
def edit_assignment(site: Site) -> None:
    """Edit, or advise on, an assignment `config.….field = value`."""
    if any(is_remapping(site, target) for target in site.node.targets):
        switch_remapping_off(site, site.node.value, is_only_target=len(site.node.targets) == 1)
        return
    target = site.node.targets[0]
    if len(site.node.targets) != 1 or not isinstance(target, ast.Attribute):
        return
    parts = config_proto.get_field_path(site, target)
    if parts[-2:] == ("optimizer_options", "global_jit_level") or is_jit_level(site, target):
        switch_xla_off(site, site.node.value)
    elif "rewrite_options" in parts or is_toggle(site, site.node.value):
        advise_rewriting(site, target.attr, site.node.value)
    elif len(parts) > 1 and site.values.kind(target.value) in ("config_proto", "npu_config_proto"):
        advise_placement(site, parts[-1], site.node.value)


@rule.call(REWRITER)
def edit_rewriter_config(site: Site) -> None:
    for keyword in site.node.keywords:
        if keyword.arg == "remapping":
            switch_remapping_off(site, keyword.value)
        else:
            advise_rewriting(site, keyword.arg or "", keyword.value)


@rule.node(ast.Call, only_if_file_contains=("remapping",))
def report_setattr(site: Site) -> None:
    if plain_name(site.node.func) != "setattr" or len(site.node.args) != 3:
        return
    _, name, value = site.node.args
    if is_literal_in(name, "remapping") and not is_off(site, value):
        report_remapping(site)


@rule.node(ast.Constant, only_if_file_contains=("remapping",))
def report_text_options(site: Site) -> None:
    """Report a string with a config in protobuf's text format that sets remapping."""
    text, is_docstring = site.node.value, isinstance(site.source.parents[site.node], ast.Expr)
    if isinstance(text, str) and not is_docstring and "rewrite_options" in text and REMAPPING_TEXT.search(text):
        report_remapping(site)


@rule.call("tensorflow.OptimizerOptions")
def edit_optimizer_options(site: Site) -> None:
    keyword = site.keyword("global_jit_level")
    if keyword is not None:
        switch_xla_off(site, keyword.value)
    elif site.has_unpacked_arguments:
        report_unpacked(site)


@rule.call(*config_proto.CONFIG_PROTO)
def advise_config_proto(site: Site) -> None:
    for keyword in site.node.keywords:
        advise_placement(site, keyword.arg or "", keyword.value)


@rule.call("tensorflow.config.optimizer.set_jit")
def edit_set_jit(site: Site) -> None:
    value = site.argument("enabled", 0) or site.argument("jit_config", 0)
    if value is None:
        report_unpacked(site)
    elif not is_constant(value, False):
        site.edit.replace_node(value, "False")
        report_xla_off(site)


@rule.call(*JIT_SCOPES)
def edit_jit_scope(site: Site) -> None:
    value = site.argument("compile_ops", 0)
    if value is None and site.has_unpacked_arguments:
        report_unpacked(site)
    elif not is_constant(value, False):
        site.set_argument("compile_ops", "False", 0)
        report_xla_off(site)


def is_jit_level(site: Site, target: ast.Attribute) -> bool:
    """Return True for `options.global_jit_level` if the code shows that `options` is an OptimizerOptions."""
    origin = site.values.assigned_value(target.value)
    is_options = isinstance(origin, ast.Call) and site.qualified_name(origin.func) == "tensorflow.OptimizerOptions"
    return target.attr == "global_jit_level" and is_options


def switch_xla_off(site: Site, value: ast.expr) -> None:
    name = site.qualified_name(value) or ""
    is_minus_one = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) and is_literal_in(value.operand, 1)
    if name.endswith("OptimizerOptions.OFF") or is_minus_one:  # OFF is -1
        return
    if "OptimizerOptions." in name and isinstance(value, ast.Attribute):
        site.edit.replace_node(value, f"{site.text_of(value.value)}.OFF")
    else:
        site.edit.replace_node(value, f"{render_tensorflow_name(site, 'OptimizerOptions')}.OFF")
    report_xla_off(site)


def is_remapping(site: Site, target: ast.expr) -> bool:
    """Return True for the field `remapping` of rewrite options, known by its path, its object or the assigned value."""
    if not isinstance(target, ast.Attribute) or target.attr != "remapping":
        return False
    if config_proto.get_field_path(site, target)[-2:] == ("rewrite_options", "remapping"):
        return True
    origin = site.values.assigned_value(target.value)
    if isinstance(origin, ast.Call) and site.qualified_name(origin.func) == REWRITER:
        return True
    statement = site.source.statement_around(target)
    return isinstance(statement, ast.Assign) and any(is_toggle(site, node) for node in ast.walk(statement.value))


def switch_remapping_off(site: Site, value: ast.expr, is_only_target: bool = True) -> None:
    """Replace the value of remapping by OFF; report `a = b = value`, since the other targets must keep the value."""
    if is_off(site, value):
        return
    if not is_only_target:
        report_remapping(site)
        return
    enumeration = site.text_of(value.value) if isinstance(value, ast.Attribute) and is_toggle(site, value) else None
    site.edit.replace_node(value, f"{enumeration or render_rewriter_config(site)}.OFF")
    site.report_change(f"{REMAPPING_FUSES[0]}: it is switched off here too", zh=f"{REMAPPING_FUSES[1]}：此处也已关闭")


def is_toggle(site: Site, value: ast.AST) -> bool:
    """Return True for RewriterConfig.ON, OFF and their like."""
    return (site.qualified_name(value) or "").startswith(f"{REWRITER}.")


def is_off(site: Site, value: ast.expr) -> bool:
    """Return True for RewriterConfig.OFF, however it was imported, and for its number."""
    if isinstance(value, ast.Constant):
        return bool(value.value == REWRITER_OFF)
    is_written = isinstance(value, ast.Attribute) and site.text_of(value).endswith("RewriterConfig.OFF")
    return is_written or site.qualified_name(value) == f"{REWRITER}.OFF"


def report_remapping(site: Site) -> None:
    site.request_review(
        f"{REMAPPING_FUSES[0]}: set it to RewriterConfig.OFF here",
        zh=f"{REMAPPING_FUSES[1]}：请在此处改为 RewriterConfig.OFF",
        risk="high",
    )


def report_xla_off(site: Site) -> None:
    site.report_change(
        "XLA is switched off: the accelerator compiles the graph itself", zh="关闭 XLA:计算图由昇腾编译执行"
    )


def report_unpacked(site: Site) -> None:
    site.request_review(
        "arguments are unpacked here: make sure that they leave XLA off; the accelerator compiles the graph itself",
        zh="此处参数为解包形式:请确认未开启 XLA;计算图由昇腾编译执行",
    )


def advise_rewriting(site: Site, field: str, value: ast.expr) -> None:
    """Advise on a field of the rewrite options that disturbs the device."""
    if field == "disable_model_pruning" and not is_constant(value, False):
        site.advise(
            "model pruning must not be disabled on the accelerator",
            zh="rewrite_options.disable_model_pruning 默认关闭,请勿开启",
            risk="high",
        )
    elif field in NEEDED_PASSES and (site.qualified_name(value) or "").endswith(".OFF"):
        site.advise(
            f"leave {field} at its default (on): the accelerator relies on it",
            zh=f"rewrite_options.{field} 默认开启,请勿关闭",
            risk="medium",
        )


def advise_placement(site: Site, field: str, value: ast.expr) -> None:
    """Advise on a field of ConfigProto about the placement of operators."""
    if field == "allow_soft_placement" and is_constant(value, False):
        site.advise(
            "keep allow_soft_placement=True: operators without a device kernel run on the host",
            zh="请保持 allow_soft_placement=True:无设备实现的算子在主机侧执行",
            risk="medium",
        )
    elif field == "log_device_placement" and is_constant(value, True):
        site.advise(
            "log_device_placement does not show what runs on the accelerator; switch it off",
            zh="log_device_placement 对昇腾无意义,建议设为 False",
        )
