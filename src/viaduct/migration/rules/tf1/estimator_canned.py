"""Give a ready-made estimator the accelerator's configuration.

     import tensorflow as tf
    +from npu_bridge.npu_init import npu_run_config_init
    -model = tf.estimator.DNNClassifier([64], columns)
    +model = tf.estimator.DNNClassifier([64], columns, config=npu_run_config_init())

The class stays: npu_run_config_init turns a RunConfig, or nothing, into one for the device.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="E8", kind="mandatory", order=41)

FAMILIES = ("Baseline", "BoostedTrees", "DNN", "DNNLinearCombined", "Linear")
# The place of `config` among the positional arguments (TensorFlow 1.15).
POSITIONS = {
    "BaselineClassifier": 6, "BaselineEstimator": 3, "BaselineRegressor": 5,
    "BoostedTreesClassifier": 15, "BoostedTreesEstimator": 14, "BoostedTreesRegressor": 14,
    "DNNClassifier": 10, "DNNEstimator": 8, "DNNRegressor": 9,
    "DNNLinearCombinedClassifier": 12, "DNNLinearCombinedEstimator": 9, "DNNLinearCombinedRegressor": 11,
    "LinearClassifier": 7, "LinearEstimator": 4, "LinearRegressor": 6,
}  # fmt: skip


@rule.call(*(f"tensorflow.estimator.{name}" for name in POSITIONS))
def configure(site: Site) -> None:
    config = site.argument("config", POSITIONS[site.name.rpartition(".")[2]])
    if config is None and site.unpacked:
        site.manual(
            "arguments are unpacked here: pass config=npu_run_config_init(run_config=…)",
            zh="此处参数为解包形式:请传入 config=npu_run_config_init(run_config=…)",
        )
        return
    if config is not None and already(site, config):
        return
    init = site.need("npu_run_config_init")
    if config is None:
        site.edit.add_argument(site.node, f"config={init}()")
    elif isinstance(config, ast.Constant) and config.value is None:
        site.edit.node(config, f"{init}()")
    else:
        site.edit.node(config, f"{init}(run_config={site.text(config)})")
    site.changed(
        "the ready-made estimator gets the device's configuration", zh="为预制 Estimator 传入昇腾设备的运行配置"
    )


def already(site: Site, config: ast.expr) -> bool:
    origin = site.values.origin(config)
    name = site.qualified(origin.func) if isinstance(origin, ast.Call) else None
    return name in ("npu_bridge.npu_init.npu_run_config_init", "npu_bridge.estimator.npu.npu_config.NPURunConfig")
