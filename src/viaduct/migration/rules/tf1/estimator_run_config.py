"""Replace RunConfig by the NPU's NPURunConfig.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_config import NPURunConfig
    -config = tf.estimator.RunConfig("out", train_distribute=strategy, save_checkpoints_steps=100)
    +config = NPURunConfig(model_dir="out", save_checkpoints_steps=100)

Positional arguments become keywords, since NPURunConfig's first one is iterations_per_loop. Strategies
(train_distribute, eval_distribute, experimental_distribute) are removed, since every device has its own process, and
arguments that NPURunConfig does not have: device_fn, protocol, experimental_max_worker_delay_secs,
session_creation_timeout_secs and checkpoint_save_graph_def. A subclass of RunConfig, and unpacked arguments, need
manual review. A RunConfig that is used only for canned estimators, or passed to npu_run_config_init, keeps its class
and loses only its strategies.
"""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import (
    is_only_for_canned_estimators,
    is_only_passed_to_converter,
    render_defaults,
    report_reference,
    report_unpacked,
)

rule = Rule(__name__, target_needs="run_configs", spec_rows=("E1", "E2", "E3", "E4"))

# The parameters of RunConfig in order: first those that are kept, then those that are removed.
KEPT_PARAMETERS = (
    "model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs",
    "session_config", "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps",
)  # fmt: skip
REMOVED_PARAMETERS = (
    "train_distribute", "device_fn", "protocol", "eval_distribute", "experimental_distribute",
    "experimental_max_worker_delay_secs", "session_creation_timeout_secs", "checkpoint_save_graph_def",
)  # fmt: skip
STRATEGY_PARAMETERS = ("train_distribute", "eval_distribute", "experimental_distribute")


@rule.call("tensorflow.estimator.RunConfig")
def convert_run_config(site: Site) -> None:
    """Turn a RunConfig into an NPURunConfig; one for canned estimators only loses its strategies."""
    if is_only_for_canned_estimators(site, site.node) or is_only_passed_to_converter(site, site.node):
        remove_strategies(site)
        return
    if not site.is_editable or site.has_starred_arguments:
        report_unpacked(site, "RunConfig", "NPURunConfig")
        return
    site.rename(site.import_npu_name("NPURunConfig"))
    site.report_change("RunConfig becomes NPURunConfig", zh="RunConfig 替换为 NPURunConfig")
    convert_arguments(site)
    if site.has_unpacked_arguments:
        site.request_review(
            "arguments are unpacked from **: remove from them " + ", ".join(sorted(REMOVED_PARAMETERS)),
            zh="参数以 ** 传入:请从中去掉 " + "、".join(sorted(REMOVED_PARAMETERS)),
        )


def remove_strategies(site: Site) -> None:
    strategies = [keyword for keyword in site.node.keywords if keyword.arg in STRATEGY_PARAMETERS]
    if strategies and site.is_editable:
        site.remove_arguments(strategies)
        for keyword in strategies:
            site.report_change(
                f"{keyword.arg} is removed: every device has its own process",
                zh=f"已删除 {keyword.arg}:每个设备对应一个进程",
                node=keyword,
            )


def convert_arguments(site: Site) -> None:
    """Name the positional arguments, remove those of REMOVED_PARAMETERS, and add defaults."""
    arguments = dict(zip((*KEPT_PARAMETERS, *REMOVED_PARAMETERS), site.node.args, strict=False))
    arguments |= {keyword.arg: keyword for keyword in site.node.keywords if keyword.arg}
    for name, argument in arguments.items():
        if name in REMOVED_PARAMETERS:
            report_removed(site, name, argument)
        elif not isinstance(argument, ast.keyword):
            site.pass_by_keyword(argument, name)
    removed = [argument for name, argument in arguments.items() if name in REMOVED_PARAMETERS]
    site.remove_arguments(removed, add=render_defaults(site, set(arguments)))


def report_removed(site: Site, name: str, argument: ast.expr | ast.keyword) -> None:
    """Report a removed argument, and that its value is not used any more."""
    value = argument.value if isinstance(argument, ast.keyword) else argument
    if is_none(value):
        effect, effect_zh = "", ""
    elif isinstance(value, ast.Call):
        effect, effect_zh = f"; the call {site.text_of(value)} is no longer made", f";不再调用 {site.text_of(value)}"
    else:
        effect, effect_zh = f"; {site.text_of(value)} may now be unused", f";{site.text_of(value)} 可能不再使用"
    reason, reason_zh = "NPURunConfig does not have it", "NPURunConfig 不支持"
    if name in STRATEGY_PARAMETERS:
        reason, reason_zh = "every device has its own process", "每个设备对应一个进程"
    site.report_change(
        f"{name} is removed: {reason}{effect}", zh=f"已删除 {name}:{reason_zh}{effect_zh}", node=argument
    )


@rule.call("tensorflow.contrib.learn.RunConfig")
def report_contrib_class(site: Site) -> None:
    site.request_review(
        "tf.contrib.learn.RunConfig is another class: move to tf.estimator first",
        zh="tf.contrib.learn.RunConfig 是另一个类:请先改用 tf.estimator",
        risk="high",
    )


@rule.reference("tensorflow.estimator.RunConfig")
def report_class(site: Site) -> None:
    report_reference(site, "RunConfig", "NPURunConfig")
