"""Give a ready-made estimator the accelerator's configuration.

     import tensorflow as tf
    +from npu_bridge.npu_init import npu_run_config_init
    -model = tf.estimator.DNNClassifier([64], columns)
    +model = tf.estimator.DNNClassifier([64], columns, config=npu_run_config_init())

The class stays, and so does a RunConfig that goes to such estimators alone: npu_run_config_init makes one for the
device, from that RunConfig if there is one.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import CONFIG_POSITIONS, CONVERTER

rule = Rule(__name__, after=("estimator_run_config",))

NPU_RUN_CONFIG = full_name("NPURunConfig")


@rule.call(*(f"tensorflow.estimator.{name}" for name in CONFIG_POSITIONS))
def configure(site: Site) -> None:
    """Give a ready-made estimator the device's configuration; report a config that is an NPURunConfig."""
    config = site.argument("config", CONFIG_POSITIONS[site.name.rpartition(".")[2]])
    if config is None and site.has_unpacked_arguments:
        site.request_review(
            "arguments are unpacked here: pass config=npu_run_config_init(run_config=…)",
            zh="此处参数为解包形式:请传入 config=npu_run_config_init(run_config=…)",
        )
        return
    origin = site.values.origin(config) if config is not None else None
    made_by = site.qualified(origin.func) if isinstance(origin, ast.Call) else None
    if made_by == CONVERTER:
        return
    if made_by == NPU_RUN_CONFIG:
        site.request_review(
            "only NPUEstimator reads an NPURunConfig, so this ready-made estimator would not run on the device: give "
            "it a RunConfig of its own through config=npu_run_config_init(run_config=…)",
            zh="NPURunConfig 仅对 NPUEstimator 有效:请为预制 Estimator 单独建立 RunConfig,并传入 "
            "config=npu_run_config_init(run_config=…)",
            risk="high",
            node=config,
        )
        return
    init = site.import_name("npu_run_config_init")
    if config is None:
        site.edit.add_argument(site.node, f"config={init}()")
    elif is_none(config):
        site.edit.node(config, f"{init}()")
    else:
        site.edit.node(config, f"{init}(run_config={site.text(config)})")
    site.report_change(
        "the ready-made estimator gets the device's configuration", zh="为预制 Estimator 传入昇腾设备的运行配置"
    )
