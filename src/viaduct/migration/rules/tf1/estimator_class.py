"""Replace Estimator by the NPU's NPUEstimator.

     import tensorflow as tf
     from npu_bridge.estimator.npu.npu_config import NPURunConfig
    +from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
     config = NPURunConfig(model_dir="out")
    -classifier = tf.estimator.Estimator(model_fn, "out", config, {}, start)
    +classifier = NPUEstimator(model_fn, "out", config, {}, warm_start_from=start)

A fifth positional argument is named warm_start_from, since the fifth parameter of NPUEstimator is another one.
NPUEstimator requires an NPURunConfig: a missing config is added, with advice on defaults that differ from those of
TensorFlow, and a config that may be something else needs manual review. An Estimator whose config comes from
npu_run_config_init stays: Ascend's migration tool writes such code.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import keyword_value
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _run_configs as run_configs

# After estimator_run_config, which turns the config into an NPURunConfig.
rule = Rule(
    __name__,
    target_needs="estimators",
    spec_rows=("E5", "E6", "E7"),
    after=("estimator_run_config",),
)

CONTRIB_CLASSES = (
    *(f"{family}{kind}" for family in ("DNN", "Linear", "DNNLinearCombined") for kind in ("Classifier", "Regressor")),
    *(f"{family}Estimator" for family in ("", "DNN", "Linear", "DNNLinearCombined", "DynamicRnn")),
    "LogisticRegressor", "SVM", "KMeansClustering", "Experiment", "SKCompat",
)  # fmt: skip


@rule.call("tensorflow.estimator.Estimator")
def convert_estimator(site: Site) -> None:
    if run_configs.comes_from_converter(site, site.argument("config", 2)):
        return
    if not site.is_editable or site.has_starred_arguments:
        run_configs.report_unpacked(site, "Estimator", "NPUEstimator")
        return
    site.rename(site.import_npu_name("NPUEstimator"))
    if len(site.node.args) >= 5:
        site.pass_by_keyword(site.node.args[4], "warm_start_from")
    site.report_change("Estimator becomes NPUEstimator", zh="Estimator 替换为 NPUEstimator")
    check_config(site)


def check_config(site: Site) -> None:
    """Add a missing config; report one that may be no NPURunConfig, or that has another model_dir."""
    config = site.argument("config", 2)
    if config is None or is_none(config):
        if not site.has_unpacked_arguments:
            run_configs.add_run_config(site, site.argument("model_dir", 1), position=2)
            site.report_change(
                "NPUEstimator needs an NPURunConfig: added", zh="NPUEstimator 必须传入 NPURunConfig:已添加"
            )
    elif site.values.kind(config) != "npu_run_config":
        site.request_review(*run_configs.describe_unknown_config(site, config), risk="high", node=config)
    else:
        compare_directories(site, config)


def compare_directories(site: Site, config: ast.expr) -> None:
    """Report a model_dir that differs from the config's, for which NPUEstimator raises ValueError."""
    directory = site.argument("model_dir", 1)
    origin = site.values.assigned_value(config)
    if directory is None or not isinstance(origin, ast.Call):
        return
    in_config = keyword_value(origin, "model_dir")
    if in_config is not None and ast.dump(directory) != ast.dump(in_config):
        site.request_review(
            f"model_dir is {site.text_of(directory)} here and {site.text_of(in_config)} in the config: NPUEstimator "
            "raises ValueError when they differ",
            zh=f"此处 model_dir 为 {site.text_of(directory)},config 中为 {site.text_of(in_config)}:"
            "两者不同时 NPUEstimator 抛出 ValueError",
        )


@rule.reference("tensorflow.estimator.Estimator")
def report_class(site: Site) -> None:
    run_configs.report_reference(site, "Estimator", "NPUEstimator")


@rule.call(*(f"tensorflow.contrib.learn.{name}" for name in CONTRIB_CLASSES))
def report_contrib_class(site: Site) -> None:
    site.request_review(
        f"{site.name.removeprefix('tensorflow.')} is an older class that is not migrated: move to tf.estimator first",
        zh=f"{site.name.removeprefix('tensorflow.')} 是旧接口:请先改用 tf.estimator",
        risk="high",
    )
