"""Set the session's options for precision, fusion switches, profiling and dumps.

With `--precision allow_mix_precision --dump /tmp/dump --dump-step 0|5|10`:

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

The flags are `--precision`, `--fusion-switch FILE`, `--profile DIR`, `--dump DIR` and `--dump-step`; each sets keys of
the custom optimizer's parameter_map. Keys that the script sets stay, and so does a precision that it sets by
precision_mode or precision_mode_v2. With `--loop N` the rule advises to wrap the train op. Calls of Ascend's helpers
that return a config, such as npu_config_proto, need manual review: they take no such keys.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import dotted_name, plain_name
from viaduct.migration.options import Options, has_run_options
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.profiling_points import render_profiling_options
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import PRECISION_KEYS
from viaduct.migration.rules.tf1._tensorflow_names import render_bytes

# After lifecycle_cycles, which may write a session too.
rule = Rule(
    __name__,
    target_needs="sessions",
    spec_rows=("S13", "L6"),
    when=has_run_options,
    after=("lifecycle_cycles",),
)

# Functions of npu_bridge that return a config or a session with NpuOptimizer.
CONFIG_HELPERS = tuple(
    full_name(name)
    for name in ("npu_config_proto", "npu_run_config_init", "set_keras_session_npu_config", "init_resource")
)


def render_required_options(site: Site, options: Options) -> dict[str, str]:
    """Return the keys of the parameter_map for the options, each with the code that sets it: `.b = True`."""
    keys: dict[str, str] = {}
    if options.precision:
        keys[options.precision_key] = f".s = {render_bytes(site, options.precision)}"
    if options.fusion_switch:
        keys["fusion_switch_file"] = f".s = {render_bytes(site, options.fusion_switch)}"
    if options.profile:
        profiling = render_bytes(site, render_profiling_options(options))
        keys |= {"profiling_mode": ".b = True", "profiling_options": f".s = {profiling}"}
    if options.dump:
        keys |= {"enable_dump": ".b = True", "dump_path": f".s = {render_bytes(site, options.dump)}"}
        if options.dump_step:
            keys["dump_step"] = f".s = {render_bytes(site, options.dump_step)}"
        keys["dump_mode"] = f".s = {render_bytes(site, 'all')}"
    return keys


@rule.node(ast.Assign, only_if_file_contains=("NpuOptimizer",))
def add_keys(site: Site) -> None:
    """Add the missing keys after `custom_op.name = "NpuOptimizer"`, or after the statement that sets use_off_line."""
    target, value = site.node.targets[0], site.node.value
    custom = plain_name(target.value) if isinstance(target, ast.Attribute) and target.attr == "name" else ""
    if not custom or not is_literal_in(value, "NpuOptimizer"):
        return
    present = find_set_keys(site, custom)
    excluded = present.keys() | (PRECISION_KEYS if present.keys() & PRECISION_KEYS else set())
    missing = {key: text for key, text in render_required_options(site, site.options).items() if key not in excluded}
    if missing:
        location = present.get("use_off_line", site.node)
        site.edit.insert_after(location, [f'{custom}.parameter_map["{key}"]{text}' for key, text in missing.items()])
        site.report_change(
            f"the session gets {', '.join(missing)}, as requested on the command line",
            zh=f"按命令行要求为会话设置:{'、'.join(missing)}",
        )
    if site.options.loop > 1:
        site.advise(
            f"to run {site.options.loop} steps per loop on the device, wrap the train op: "
            f"util.set_iteration_per_loop(sess, train_op, {site.options.loop})",
            zh=f"若每次下沉 {site.options.loop} 步,请用 "
            f"util.set_iteration_per_loop(sess, train_op, {site.options.loop}) 包装训练算子",
        )


@rule.call(*CONFIG_HELPERS)
def report_helper(site: Site) -> None:
    keys = [*render_required_options(site, site.options), *(["iterations_per_loop"] if site.options.loop > 1 else [])]
    helper = site.name.rpartition(".")[2]
    site.request_review(
        f"{helper} takes no {', '.join(keys)}: set this on the config yourself",
        zh=f"{helper} 无法传入 {'、'.join(keys)},请自行写入 config",
    )


def find_set_keys(site: Site, custom: str) -> dict[str, ast.stmt]:
    """Return the keys of the parameter_map that the function sets, each with its statement."""
    function = site.source.function_around(site.node) or site.source.tree
    statements: dict[str, ast.stmt] = {}
    for node in ast.walk(function):
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(key, ast.Constant) and dotted_name(node.value) == f"{custom}.parameter_map":  # type: ignore[attr-defined]
            statements[str(key.value)] = site.source.statement_around(node)
    return statements
