"""Give the session what was asked for on the command line: precision, fusion switches, profiling, dump.

     import tensorflow as tf
     config = tf.ConfigProto()
     custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
     custom_op.name = "NpuOptimizer"
     custom_op.parameter_map["use_off_line"].b = True
    +custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
    +custom_op.parameter_map["enable_dump"].b = True
    +custom_op.parameter_map["dump_path"].s = tf.compat.as_bytes("/tmp/dump")
    +custom_op.parameter_map["dump_step"].s = tf.compat.as_bytes("0|5|10")
    +custom_op.parameter_map["dump_mode"].s = tf.compat.as_bytes("all")
     sess = tf.Session(config=config)

Each is a key of the custom optimizer's parameter_map (`--precision`, `--fusion-switch FILE`, `--profile DIR`,
`--dump DIR`, `--dump-step`). A key that the script sets already is left as it is.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.options import Options
from viaduct.migration.profiling_points import write_profiling_options
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as proto

rule = Rule(
    __name__,
    spec="S13 L6",
    kind="mandatory",
    on=lambda options: bool(
        options.precision or options.profile or options.dump or options.fusion_switch or options.loop > 1
    ),
    after=("lifecycle_cycles",),
)
EXAMPLE_OPTIONS = {"precision": "allow_mix_precision", "dump": "/tmp/dump", "dump_step": "0|5|10"}

SECOND_VERSION = ("fp16", "origin", "mixed_float16", "mixed_bfloat16")  # of precision_mode_v2 alone
HELPERS = tuple(full_name(name) for name in ("npu_config_proto", "set_keras_session_npu_config", "init_resource"))


def required_options(site: Site, options: Options) -> dict[str, str]:
    """Key -> the rest of the statement."""
    keys: dict[str, str] = {}
    if options.precision:
        key = "precision_mode_v2" if options.precision in SECOND_VERSION else "precision_mode"
        keys[key] = f".s = {proto.as_bytes(site, options.precision)}"
    if options.fusion_switch:
        keys["fusion_switch_file"] = f".s = {proto.as_bytes(site, options.fusion_switch)}"
    if options.profile:
        asked = write_profiling_options(options)
        keys |= {"profiling_mode": ".b = True", "profiling_options": f".s = {proto.as_bytes(site, asked)}"}
    if options.dump:
        keys |= {"enable_dump": ".b = True", "dump_path": f".s = {proto.as_bytes(site, options.dump)}"}
        keys |= {"dump_step": f".s = {proto.as_bytes(site, options.dump_step)}"} if options.dump_step else {}
        keys["dump_mode"] = f".s = {proto.as_bytes(site, 'all')}"
    return keys


@rule.node(ast.Assign, words=("NpuOptimizer",))
def add_keys(site: Site) -> None:
    """At `custom_op.name = "NpuOptimizer"`; behind use_off_line where it stands."""
    target, value = site.node.targets[0], site.node.value
    named = isinstance(target, ast.Attribute) and target.attr == "name" and isinstance(target.value, ast.Name)
    if not (named and isinstance(value, ast.Constant) and value.value == "NpuOptimizer"):
        return
    custom, present = target.value.id, keys_set(site, target.value.id)
    missing = {key: item for key, item in required_options(site, site.options).items() if key not in present}
    missing = {} if "precision_mode_v2" in present and "precision_mode" in missing and len(missing) == 1 else missing
    if missing:
        location = present.get("use_off_line", site.node)
        site.edit.insert_after(location, [f'{custom}.parameter_map["{key}"]{node}' for key, node in missing.items()])
        site.changed(f"the session is asked for {', '.join(missing)}", zh=f"会话配置项:{'、'.join(missing)}")
    if site.options.loop > 1:
        site.advice(
            f"to run {site.options.loop} steps a loop, wrap the train op: "
            f"util.set_iteration_per_loop(sess, train_op, {site.options.loop})",
            zh=f"若每次下沉 {site.options.loop} 步,请用 util.set_iteration_per_loop 包装训练算子",
        )


@rule.call(*HELPERS)
def helper(site: Site) -> None:
    keys = ", ".join(required_options(site, site.options))
    if keys:
        site.manual(
            f"{site.name.rpartition('.')[2]} has no room for {keys}: set them on the config before",
            zh=f"{site.name.rpartition('.')[2]} 无法传入 {keys},请事先写入 config",
        )


def keys_set(site: Site, custom: str) -> dict[str, ast.stmt]:
    """Keys of the parameter_map that the function sets, and the statements that do."""
    around = site.source.function(site.node) or site.source.tree
    found: dict[str, ast.stmt] = {}
    for node in ast.walk(around):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            holder = node.value
            ours = isinstance(holder, ast.Attribute) and holder.attr == "parameter_map"
            if ours and isinstance(holder.value, ast.Name) and holder.value.id == custom:  # type: ignore[attr-defined]
                found[str(node.slice.value)] = site.source.statement(node)
    return found
