"""Uses of a RunConfig: by canned estimators, or by Ascend's npu_run_config_init.

TensorFlow calls its ready-made Estimators, such as DNNClassifier, canned. npu_run_config_init converts a RunConfig for
them.
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import assigned_name, bindings_of, call_with_argument, find_reads
from viaduct.migration.predicates import find_argument, is_in_annotation, is_in_instance_check, is_none_or_absent
from viaduct.migration.rule import Site

# Position of `config` among the arguments of the canned estimators (TensorFlow 1.15).
CONFIG_POSITIONS = {
    "BaselineClassifier": 6, "BaselineEstimator": 3, "BaselineRegressor": 5,
    "BoostedTreesClassifier": 15, "BoostedTreesEstimator": 14, "BoostedTreesRegressor": 14,
    "DNNClassifier": 10, "DNNEstimator": 8, "DNNRegressor": 9,
    "DNNLinearCombinedClassifier": 12, "DNNLinearCombinedEstimator": 9, "DNNLinearCombinedRegressor": 11,
    "LinearClassifier": 7, "LinearEstimator": 4, "LinearRegressor": 6,
}  # fmt: skip
PRECISION_KEYS = {"precision_mode", "precision_mode_v2"}  # settings for the precision, of which a config has one
CONVERTER = full_name("npu_run_config_init")
# Defaults of TensorFlow that NPURunConfig does not share.
DEFAULTS = {"save_summary_steps": "100", "save_checkpoints_secs": "600"}
DEFAULT_ADVICE = {
    "save_summary_steps": (
        "without save_summary_steps no summaries are written (TensorFlow: every 100 steps); see --keep-defaults",
        "未设置 save_summary_steps 时不写 summary(TensorFlow 为每 100 步);参见 --keep-defaults",
    ),
    "save_checkpoints_secs": (
        "without a checkpoint interval it saves every 100 steps (TensorFlow: every 600 s); see --keep-defaults",
        "未设置 checkpoint 间隔时每 100 步保存一次(TensorFlow 为每 600 秒);参见 --keep-defaults",
    ),
}


def is_only_for_canned_estimators(site: Site, config: ast.expr) -> bool:
    """Return True if a RunConfig is used only for canned estimators."""
    uses = find_config_uses(site, config)
    return bool(uses) and all(is_passed_to_canned_estimator(site, use) for use in uses)


def is_only_passed_to_converter(site: Site, config: ast.expr) -> bool:
    """Return True for a RunConfig that is only passed to npu_run_config_init, as in code that Ascend's tool wrote.

    False if an NPUEstimator gets the result, since it needs an NPURunConfig.
    """
    uses = find_config_uses(site, config)
    return bool(uses) and all(is_passed_to_converter(site, use) for use in uses)


def find_config_uses(site: Site, config: ast.expr) -> list[ast.expr]:
    """Return the reads of the variable that holds a config, or the config itself if there is no variable."""
    variable = assigned_name(site, config)
    return [config] if variable is None else list(find_reads(site, variable))


def is_passed_to_converter(site: Site, value: ast.expr) -> bool:
    """Return True if a value is an argument of npu_run_config_init, and no NPUEstimator gets that call's result."""
    call = call_with_argument(site, value)
    if call is None or site.qualified_name(call.func) != CONVERTER:
        return False
    receivers = [call_with_argument(site, use) for use in find_config_uses(site, call)]
    return not any(
        (site.qualified_name(receiver.func) or "").endswith(".NPUEstimator") for receiver in receivers if receiver
    )


def comes_from_converter(site: Site, config: ast.expr | None) -> bool:
    """Return True for a result of npu_run_config_init, and for a variable with such a value."""
    if config is None:
        return False
    bindings = bindings_of(site, config) if isinstance(config, ast.Name) else []
    values = [site.values.assigned_value(config), *bindings]
    return any(isinstance(value, ast.Call) and site.qualified_name(value.func) == CONVERTER for value in values)


def is_passed_to_canned_estimator(site: Site, value: ast.expr) -> bool:
    """Return True if a value is the config of a canned estimator, directly or through npu_run_config_init."""
    call = call_with_argument(site, value)
    if call is None:
        return False
    name = site.qualified_name(call.func) or ""
    if name == CONVERTER:
        return is_passed_to_canned_estimator(site, call)
    position = CONFIG_POSITIONS.get(name.removeprefix("tensorflow.estimator."))
    return position is not None and value is find_argument(call, "config", position)


def report_reference(site: Site, old: str, new: str) -> None:
    """Report a class that derives from the TensorFlow class `old`, and `old` if it is passed on instead of called."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.ClassDef):
        site.request_review(
            f"class {parent.name} derives from {old}: derive it from {new} and check its arguments",
            zh=f"类 {parent.name} 继承 {old}:请改为继承 {new} 并核对参数",
            risk="high",
        )
    elif not is_in_instance_check(site.source, site.node) and not is_in_annotation(site.source, site.node):
        site.request_review(
            f"{old} is passed on instead of being called: {new} takes other arguments, so change this by hand",
            zh=f"{old} 被当作值传递:{new} 的参数不同,请手工处理",
            risk="high",
        )


def describe_unknown_config(site: Site, config: ast.expr) -> Bilingual:
    """Return the finding about a config that may be no NPURunConfig, in English and Chinese."""
    text = site.text_of(config)
    return (
        f"the code does not show that {text} is an NPURunConfig; NPUEstimator refuses any other",
        f"无法确认 config={text} 是 NPURunConfig;NPUEstimator 不接受其他类型",
    )


def add_run_config(site: Site, directory: ast.expr | None, position: int) -> None:
    """Give an Estimator a new NPURunConfig as the argument `config`; `directory`: its model_dir."""
    argument = "" if is_none_or_absent(directory) else f"model_dir={site.text_of(directory)}"  # type: ignore[arg-type]
    arguments = ", ".join(filter(None, (argument, render_defaults(site, set()))))
    site.set_argument("config", f"{site.import_npu_name('NPURunConfig')}({arguments})", position)


def report_unpacked(site: Site, old: str, new: str) -> None:
    site.request_review(
        f"positional arguments are unpacked into {old}: name them, then it can become {new}",
        zh=f"{old} 的位置参数以解包形式传入:请先改为关键字参数,再替换为 {new}",
        risk="high",
    )


def render_defaults(site: Site, present: set[str]) -> str:
    """Return the arguments that keep TensorFlow's defaults; without --keep-defaults advise on them and return ""."""
    missing = {name: value for name, value in DEFAULTS.items() if name not in present}
    if "save_checkpoints_steps" in present:
        missing.pop("save_checkpoints_secs", None)
    if missing and site.options.keep_defaults and not site.has_unpacked_arguments:
        return ", ".join(f"{name}={value}" for name, value in missing.items())
    for name in missing:
        site.advise(*DEFAULT_ADVICE[name])
    return ""
