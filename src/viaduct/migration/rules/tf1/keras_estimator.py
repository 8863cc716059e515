"""Turn a Keras model into the NPU's Estimator.

     import tensorflow as tf
    -estimator = tf.keras.estimator.model_to_estimator(model, model_dir="out")
    +from npu_bridge.estimator.npu import keras_to_npu
    +from npu_bridge.estimator.npu.npu_config import NPURunConfig
    +estimator = keras_to_npu.model_to_npu_estimator(model, model_dir="out", config=NPURunConfig(model_dir="out"))

The Estimator must be an NPUEstimator with an NPURunConfig. model_to_estimator and model_to_npu_estimator have the same
first four parameters; later positional arguments become keyword arguments.
"""

from __future__ import annotations

from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import add_run_config

rule = Rule(__name__, target_needs="estimators", spec_rows=("K4",))

PARAMETERS = ("keras_model", "keras_model_path", "custom_objects", "model_dir", "config", "checkpoint_format")


@rule.call("tensorflow.keras.estimator.model_to_estimator")
def convert_model(site: Site) -> None:
    if site.has_starred_arguments or not site.is_editable:
        site.request_review(
            "arguments are unpacked here: write keras_to_npu.model_to_npu_estimator with an NPURunConfig",
            zh="model_to_estimator 的参数为解包形式:请改写为 keras_to_npu.model_to_npu_estimator 并传入 NPURunConfig",
        )
        return
    site.rename(f"{site.import_npu_name('keras_to_npu')}.model_to_npu_estimator")
    for value, name in zip(site.node.args[4:], PARAMETERS[4:], strict=False):
        site.pass_by_keyword(value, name)
    site.report_change("the model becomes an NPUEstimator", zh="Keras 模型转换为 NPUEstimator")
    check_config(site)


def check_config(site: Site) -> None:
    """Add a missing config; report one that may be no NPURunConfig."""
    config = site.argument("config", 4)
    if is_none(config) or (config is None and not site.has_unpacked_arguments):
        add_run_config(site, site.argument("model_dir", 3), position=4)
    elif config is None or site.values.kind(config) != "npu_run_config":
        site.request_review(
            "the config of this Estimator must be an NPURunConfig, and the code does not show that it is one",
            zh="其 config 必须是 NPURunConfig,此处无法确认",
            risk="high",
        )
