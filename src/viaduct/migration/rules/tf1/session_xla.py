"""Switch TensorFlow's own compiler (XLA) off.

     import tensorflow as tf
     config = tf.ConfigProto()
    -config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    +config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF

The graph is compiled for the accelerator by its own engine; XLA would take nodes away from it. The same goes for
`tf.config.optimizer.set_jit` and for `jit_scope`. Other settings that disturb the device are advice: Grappler's passes
stay at their defaults, model pruning is never disabled, soft placement stays on.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as proto

rule = Rule(__name__, spec="S5 S12", kind="mandatory", order=22)

SCOPES = (
    "tensorflow.xla.experimental.jit_scope",
    "tensorflow.contrib.compiler.jit.experimental_jit_scope",
)
STAY_ON = {
    *("function_optimization", "constant_folding", "shape_optimization", "arithmetic_optimization"),
    *("loop_optimization", "dependency_optimization", "layout_optimizer"),
}


@rule.node(ast.Assign, words=("global_jit_level", "rewrite_options", "_placement", "_optimization"))
def setting(site: Site) -> None:
    """`config.….field = value`."""
    target = site.node.targets[0]
    if len(site.node.targets) != 1 or not isinstance(target, ast.Attribute):
        return
    parts = proto.chain(site, target)
    if parts[-2:] == ("optimizer_options", "global_jit_level") or is_jit_level(site, target):
        switch_off(site, site.node.value)
    elif "rewrite_options" in parts:
        advise_rewriting(site, parts[-1], site.node.value)
    elif len(parts) > 1 and site.values.kind(target.value) in ("config_proto", "npu_config_proto"):
        advise_placement(site, parts[-1], site.node.value)


@rule.call("tensorflow.OptimizerOptions")
def optimizer_options(site: Site) -> None:
    word = site.keyword("global_jit_level")
    if word is not None:
        switch_off(site, word.value)


@rule.call(*proto.CONFIG_PROTO)
def config_proto(site: Site) -> None:
    for word in site.node.keywords:
        advise_placement(site, word.arg or "", word.value)


@rule.call("tensorflow.config.optimizer.set_jit")
def set_jit(site: Site) -> None:
    value = site.argument("enabled", 0) or site.argument("jit_config", 0)
    if value is not None and not is_constant(value, False):
        site.edit.node(value, "False")
        say_off(site)


@rule.call(*SCOPES)
def jit_scope(site: Site) -> None:
    if not is_constant(site.argument("compile_ops", 0), False) and not site.unpacked:
        site.set_argument("compile_ops", "False", 0)
        say_off(site)


def is_jit_level(site: Site, target: ast.Attribute) -> bool:
    """`options.global_jit_level` of an OptimizerOptions built before."""
    made = site.values.origin(target.value)
    known = isinstance(made, ast.Call) and site.qualified(made.func) == "tensorflow.OptimizerOptions"
    return target.attr == "global_jit_level" and known


def switch_off(site: Site, value: ast.expr) -> None:
    """OFF in the words of the value where it is one of the enumeration's, else spelled anew."""
    name = site.qualified(value) or ""
    if name.endswith("OptimizerOptions.OFF") or is_constant(value, -1) or minus_one(value):
        return
    if "OptimizerOptions." in name and isinstance(value, ast.Attribute):
        site.edit.node(value, f"{site.text(value.value)}.OFF")
    else:
        site.edit.node(value, f"{proto.tensorflow_name(site, 'OptimizerOptions')}.OFF")
    say_off(site)


def minus_one(value: ast.expr) -> bool:
    negative = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    return negative and is_constant(value.operand, 1)  # type: ignore[attr-defined]


def say_off(site: Site) -> None:
    site.changed("XLA is switched off: the accelerator compiles the graph itself", zh="关闭 XLA:计算图由昇腾编译执行")


def advise_rewriting(site: Site, field: str, value: ast.expr) -> None:
    if field == "disable_model_pruning" and not is_constant(value, False):
        site.advice(
            "model pruning must not be disabled on the accelerator",
            zh="rewrite_options.disable_model_pruning 默认关闭,请勿开启",
            risk="high",
        )
    elif field in STAY_ON and (site.qualified(value) or "").endswith(".OFF"):
        site.advice(
            f"leave {field} at its default (on): the accelerator relies on it",
            zh=f"rewrite_options.{field} 默认开启,请勿关闭",
            risk="medium",
        )


def advise_placement(site: Site, field: str, value: ast.expr) -> None:
    if field == "allow_soft_placement" and is_constant(value, False):
        site.advice(
            "keep allow_soft_placement=True: operators without a device kernel run on the host",
            zh="请保持 allow_soft_placement=True:无设备实现的算子在主机侧执行",
            risk="medium",
        )
    elif field == "log_device_placement" and is_constant(value, True):
        site.advice(
            "log_device_placement says nothing about the accelerator; switch it off",
            zh="log_device_placement 对昇腾无意义,建议设为 False",
        )


def is_constant(value: ast.expr | None, wanted: object) -> bool:
    return isinstance(value, ast.Constant) and value.value is wanted
