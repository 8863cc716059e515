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

Input functions read params["batch_size"], which TPUEstimator fills in; the training size is written there. Evaluation
and prediction then use the same size. `--tpu keep` leaves the class and only switches the TPU off.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="E10 E11", kind="mandatory", order=31)

TPU = "tensorflow.estimator.tpu"
SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")
SWITCHES = ("use_tpu", "eval_on_tpu", "export_to_tpu")
DROPPED = (*SIZES, *SWITCHES, "batch_axis", "export_to_cpu", "export_saved_model_api_version", "embedding_config_spec")
ESTIMATOR = ("model_fn", "model_dir", "config", "params")
UNKNOWN = ("train_distribute", "eval_distribute", "device_fn", "protocol")
CLUSTER = ("cluster", "master", "evaluation_master", "tpu_config", "session_config_overrides")


@rule.call(f"{TPU}.TPUEstimator")
def convert(site: Site) -> None:
    if site.options.tpu == "keep":
        switch_off(site)
        return
    if any(isinstance(value, ast.Starred) for value in site.node.args) or len(site.node.args) > len(ESTIMATOR):
        site.manual("name TPUEstimator's arguments first", zh="请先将 TPUEstimator 的参数改为关键字形式", risk="high")
        return
    site.rename(site.need("NPUEstimator"))
    dropped = [word for word in site.node.keywords if word.arg in DROPPED]
    site.remove_arguments(dropped, add=move_batch_size(site))
    site.changed("TPUEstimator becomes NPUEstimator", zh="TPUEstimator 替换为 NPUEstimator")
    sizes = {ast.unparse(word.value) for word in site.node.keywords if word.arg in SIZES}
    if len(sizes) > 1:
        site.advice(
            f"batch sizes differ ({', '.join(sorted(sizes))}); evaluation and prediction now use the training size",
            zh=f"批大小不同({'、'.join(sorted(sizes))});评估与预测现使用训练批大小",
        )


def move_batch_size(site: Site) -> str:
    """Into params, where they are written; the argument to add where there are none."""
    size, params = site.argument("train_batch_size"), site.argument("params", 3)
    if size is None:
        return ""
    entry = f'"batch_size": {site.text(size)}'
    if params is None:
        return f"params={{{entry}}}"
    if isinstance(params, ast.Dict):
        if not any(isinstance(key, ast.Constant) and key.value == "batch_size" for key in params.keys):
            end = site.source.span(params)[1] - 1
            comma = "" if not params.keys or site.source.token_before(end).text == "," else ", "  # type: ignore[union-attr]
            site.edit.insert(end, comma + entry)
    else:
        site.edit.node(params, f"dict({site.text(params)}, batch_size={site.text(size)})")
    return ""


def switch_off(site: Site) -> None:
    for word in site.node.keywords:
        if word.arg in SWITCHES and not (isinstance(word.value, ast.Constant) and word.value.value is False):
            site.edit.node(word.value, "False")
            site.changed(f"{word.arg} is switched off", zh=f"{word.arg} 已关闭", node=word)


@rule.call(f"{TPU}.RunConfig")
def run_config(site: Site) -> None:
    if site.options.tpu == "keep":
        return
    if site.node.args:
        site.manual("name tpu.RunConfig's arguments first", zh="请先将 tpu.RunConfig 的参数改为关键字形式", risk="high")
        return
    site.rename(site.need("NPURunConfig"))
    loop = loop_of(site)
    dropped = [word for word in site.node.keywords if word.arg in (*CLUSTER, *UNKNOWN)]
    site.remove_arguments(dropped, add=f"iterations_per_loop={loop}" if loop else "")
    site.changed("tpu.RunConfig becomes NPURunConfig", zh="tpu.RunConfig 替换为 NPURunConfig")


def loop_of(site: Site) -> str:
    """iterations_per_loop of the TPUConfig, given here or by name."""
    config = site.argument("tpu_config")
    origin = site.values.origin(config) if config is not None else None
    if not isinstance(origin, ast.Call):
        if config is not None:
            site.manual(
                f"iterations_per_loop of {site.text(config)} is not seen here; give it to NPURunConfig",
                zh=f"无法得知 {site.text(config)} 的 iterations_per_loop;请在 NPURunConfig 中设置",
            )
        return ""
    value = next((word.value for word in origin.keywords if word.arg == "iterations_per_loop"), None)
    value = value or (origin.args[0] if origin.args else None)
    return site.text(value) if value is not None else ""
