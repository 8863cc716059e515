"""Turn a TPUEstimator into an NPUEstimator.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_config import NPURunConfig
    +from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
    -config = tf.contrib.tpu.RunConfig(
    -    cluster=None, model_dir="out", tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=100))
    -model = tf.contrib.tpu.TPUEstimator(
    -    use_tpu=False, model_fn=model_fn, config=config, train_batch_size=32, eval_batch_size=8)
    +config = NPURunConfig(
    +    model_dir="out", iterations_per_loop=100)
    +model = NPUEstimator(
    +    model_fn=model_fn, config=config, params={"batch_size": 32})

TPUEstimator passes the batch size to input functions as params["batch_size"]; now `params` gets one, used for training,
evaluation and prediction. iterations_per_loop is kept only if all keywords for steps in the file are multiples of it,
since NPUEstimator refuses others; else it is reported. `--tpu keep` leaves the class and only switches the TPU off. A
call with `config=npu_run_config_init(…)`, as Ascend's migration tool writes it, stays.
"""

from __future__ import annotations

import ast

from viaduct.migration.predicates import find_argument, is_constant, is_literal_in, is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _run_configs as run_configs

rule = Rule(__name__, target_needs="estimators", spec_rows=("E10", "E11"))

TPU = "tensorflow.estimator.tpu"
BATCH_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")
SWITCHES = ("use_tpu", "eval_on_tpu", "export_to_tpu")
# Parameters of TPUEstimator that NPUEstimator does not have.
DROPPED_PARAMETERS = (
    *BATCH_SIZES, *SWITCHES, "batch_axis", "export_to_cpu", "export_saved_model_api_version",
    "embedding_config_spec",
)  # fmt: skip
ESTIMATOR_PARAMETERS = ("model_fn", "model_dir", "config", "params")  # positional parameters of NPUEstimator
# Parameters of tpu.RunConfig that NPURunConfig does not have.
DROPPED_CONFIG_PARAMETERS = (
    "train_distribute", "eval_distribute", "device_fn", "protocol", "cluster", "master", "evaluation_master",
    "tpu_config", "session_config_overrides",
)  # fmt: skip


@rule.call(f"{TPU}.TPUEstimator")
def convert_estimator(site: Site) -> None:
    keeps_tpu = site.options.tpu == "keep"
    if not keeps_tpu and run_configs.comes_from_converter(site, site.argument("config", 2)):
        return
    if site.has_starred_arguments or len(site.node.args) > len(ESTIMATOR_PARAMETERS):
        site.request_review(
            "name TPUEstimator's arguments first", zh="请先将 TPUEstimator 的参数改为关键字形式", risk="high"
        )
        return
    if keeps_tpu:
        switch_tpu_off(site)
        return
    site.rename(site.import_npu_name("NPUEstimator"))
    dropped = [keyword for keyword in site.node.keywords if keyword.arg in DROPPED_PARAMETERS]
    site.remove_arguments(dropped, add=move_batch_size(site))
    site.report_change("TPUEstimator becomes NPUEstimator", zh="TPUEstimator 替换为 NPUEstimator")
    check_arguments(site)
    sizes = {ast.unparse(keyword.value) for keyword in site.node.keywords if keyword.arg in BATCH_SIZES}
    if len(sizes) > 1:
        site.advise(
            f"batch sizes differ ({', '.join(sorted(sizes))}); training, evaluation and prediction now use the one in "
            "params",
            zh=f"批大小不同({'、'.join(sorted(sizes))});训练、评估与预测现统一使用 params 中的批大小",
        )


def move_batch_size(site: Site) -> str:
    """Write the batch size into params; if the call has no params, return the argument params=… to add, else ""."""
    sizes = [site.argument(name) for name in BATCH_SIZES]
    size = next((value for value in sizes if value is not None and not is_none(value)), None)
    params = site.argument("params", 3)
    if size is None:
        return ""
    entry = f'"batch_size": {site.text_of(size)}'
    if params is None:
        return f"params={{{entry}}}"
    if is_none(params):
        site.edit.replace_node(params, f"{{{entry}}}")
    elif isinstance(params, ast.Dict):
        if not any(is_literal_in(key, "batch_size") for key in params.keys):
            end = site.source.span(params)[1] - 1
            comma = "" if not params.keys or site.source.token_before(end).text == "," else ", "  # type: ignore[union-attr]
            site.edit.insert(end, comma + entry)
    else:
        site.edit.replace_node(params, f"dict({site.text_of(params)}, batch_size={site.text_of(size)})")
    return ""


def check_arguments(site: Site) -> None:
    """Report unpacked arguments, and a config that may be no NPURunConfig."""
    if site.has_unpacked_arguments:
        site.report_unresolved(
            "arguments are passed by **: NPUEstimator has neither the batch sizes nor the switches of a TPUEstimator; "
            "put the batch size into params",
            zh="参数以 ** 传入:NPUEstimator 不支持 TPUEstimator 的批大小与开关参数;请将批大小放入 params",
        )
        return
    config = site.argument("config", 2)
    if config is not None and site.values.kind(config) not in ("tpu_run_config", "run_config", "npu_run_config"):
        site.report_unresolved(*run_configs.describe_unknown_config(site, config), node=config)


def switch_tpu_off(site: Site) -> None:
    for keyword in site.node.keywords:
        if keyword.arg in SWITCHES and not is_constant(keyword.value, False):
            site.edit.replace_node(keyword.value, "False")
            site.report_change(f"{keyword.arg} is switched off", zh=f"{keyword.arg} 已关闭", node=keyword)


@rule.call(f"{TPU}.RunConfig")
def convert_run_config(site: Site) -> None:
    if site.options.tpu == "keep" or run_configs.is_only_passed_to_converter(site, site.node):
        return
    if site.node.args:
        site.request_review(
            "name tpu.RunConfig's arguments first", zh="请先将 tpu.RunConfig 的参数改为关键字形式", risk="high"
        )
        return
    site.rename(site.import_npu_name("NPURunConfig"))
    loop = check_loop(site, render_loop_of_config(site))
    dropped = [keyword for keyword in site.node.keywords if keyword.arg in DROPPED_CONFIG_PARAMETERS]
    defaults = run_configs.render_defaults(site, {keyword.arg for keyword in site.node.keywords if keyword.arg})
    added = (f"iterations_per_loop={loop}" if loop else "", defaults)
    site.remove_arguments(dropped, add=", ".join(filter(None, added)))
    site.report_change("tpu.RunConfig becomes NPURunConfig", zh="tpu.RunConfig 替换为 NPURunConfig")


def render_loop_of_config(site: Site) -> str:
    """Return the code of the TPUConfig's iterations_per_loop, or ""; report a config that may be no TPUConfig."""
    config = site.argument("tpu_config")
    origin = site.values.assigned_value(config) if config is not None else None
    if not isinstance(origin, ast.Call) or site.qualified_name(origin.func) != f"{TPU}.TPUConfig":
        if config is not None and not is_none(config):
            site.request_review(
                f"the code does not show the iterations_per_loop of {site.text_of(config)}; give it to NPURunConfig",
                zh=f"无法得知 {site.text_of(config)} 的 iterations_per_loop;请在 NPURunConfig 中设置",
            )
        return ""
    value = find_argument(origin, "iterations_per_loop", 0)
    return site.text_of(value) if value is not None else ""


def check_loop(site: Site, loop: str) -> str:
    """Return iterations_per_loop if all numbers of steps are multiples of it; else report it and return ""."""
    if loop in ("", "1"):
        return ""
    unsuited = [text for text, value in find_step_counts(site) if not is_multiple(value, loop, text)]
    if loop.isdigit() and not unsuited:
        site.advise(
            f"NPUEstimator requires every number of steps, and the interval of checkpoints, to be a multiple of {loop}",
            zh=f"NPUEstimator 要求训练步数与检查点间隔均为 {loop} 的整数倍",
        )
        return loop
    reason = f"{', '.join(unsuited)} may be no multiple of it" if unsuited else "the code does not show its value"
    site.request_review(
        f"iterations_per_loop={loop} of the TPU is left out, since {reason}, and NPUEstimator refuses such steps: give "
        "it to NPURunConfig once all steps are multiples of it (--loop N)",
        zh=f"未保留 TPU 的 iterations_per_loop={loop}:无法确认 {'、'.join(unsuited) or '其取值'} 是其整数倍,"
        "NPUEstimator 会拒绝;满足后请在 NPURunConfig 中设置(--loop N)",
    )
    return ""


def find_step_counts(site: Site) -> list[tuple[str, ast.expr | None]]:
    """Return the keywords for steps in this file, each with its text: they must be multiples of iterations_per_loop."""
    keywords = {keyword.arg: keyword.value for keyword in site.node.keywords if keyword.arg}
    saving = {name: keywords[name] for name in ("save_checkpoints_steps", "save_checkpoints_secs") if name in keywords}
    counts = [(f"{name}={site.text_of(value)}", value) for name, value in saving.items() if name.endswith("steps")]
    if not saving:
        counts.append(("the default of 100 steps between checkpoints", ast.Constant(100)))
    for call in site.source.nodes:
        method = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and method in ("train", "TrainSpec"):
            counts += [
                (f"{keyword.arg}={site.text_of(keyword.value)}", keyword.value)
                for keyword in call.keywords
                if keyword.arg in ("steps", "max_steps") and not is_none(keyword.value)
            ]
    return counts


def is_multiple(value: ast.expr | None, loop: str, text: str) -> bool:
    """Return True for a literal that is a multiple of iterations_per_loop, and for the same code: `steps=loop`."""
    if isinstance(value, ast.Constant) and isinstance(value.value, int) and loop.isdigit():
        return value.value % int(loop) == 0
    return text.endswith(f"={loop}")
