"""Pass the NPU's configuration to a canned estimator.

     import tensorflow as tf
    +from npu_bridge.npu_init import npu_run_config_init
    -model = tf.estimator.DNNClassifier([64], columns)
    +model = tf.estimator.DNNClassifier([64], columns, config=npu_run_config_init())

TensorFlow calls its ready-made Estimators, such as DNNClassifier, canned. Their class stays, and so does a RunConfig
that is used only for them: npu_run_config_init returns a configuration for the device, made from the RunConfig if there
is one.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import CONFIG_POSITIONS, CONVERTER

# After estimator_run_config, which keeps the class of configs for canned estimators only.
rule = Rule(__name__, target_needs="estimators", spec_rows=("E8",), after=("estimator_run_config",))

NPU_RUN_CONFIG = full_name("NPURunConfig")


@rule.call(*(f"tensorflow.estimator.{name}" for name in CONFIG_POSITIONS))
def pass_npu_config(site: Site) -> None:
    """Pass the device's configuration to a canned estimator; report a config that is an NPURunConfig."""
    config = site.argument("config", CONFIG_POSITIONS[site.name.rpartition(".")[2]])
    if config is None and site.has_unpacked_arguments:
        site.request_review(
            "arguments are unpacked here: pass config=npu_run_config_init(run_config=…)",
            zh="此处参数为解包形式:请传入 config=npu_run_config_init(run_config=…)",
        )
        return
    origin = site.values.assigned_value(config) if config is not None else None
    function = site.qualified_name(origin.func) if isinstance(origin, ast.Call) else None
    if function == CONVERTER:
        return
    if function == NPU_RUN_CONFIG:
        site.request_review(
            "only NPUEstimator reads an NPURunConfig, so this canned estimator would not run on the device: pass its "
            "own RunConfig, as config=npu_run_config_init(run_config=…)",
            zh="NPURunConfig 仅对 NPUEstimator 有效:请为预制 Estimator 单独建立 RunConfig,并传入 "
            "config=npu_run_config_init(run_config=…)",
            risk="high",
            node=config,
        )
        return
    init = site.import_npu_name("npu_run_config_init")
    if config is None:
        site.edit.add_argument(site.node, f"config={init}()")
    elif is_none(config):
        site.edit.replace_node(config, f"{init}()")
    else:
        site.edit.replace_node(config, f"{init}(run_config={site.text_of(config)})")
    site.report_change(
        "the canned estimator gets the device's configuration", zh="为预制 Estimator 传入昇腾设备的运行配置"
    )
