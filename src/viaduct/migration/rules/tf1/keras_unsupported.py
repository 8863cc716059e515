"""Report the parts of Keras that the NPU does not run.

`multi_gpu_model` and the mixed precision policies of tf.keras are for GPUs. `TerminateOnNaN` tests for NaN, but the
device reports an overflow in its status. CuDNN layers exist for NVIDIA cards only. Eager execution has no graph that
could be compiled for the device.
"""

from __future__ import annotations

from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _keras

rule = Rule(__name__, target_needs="tensorflow_functions", spec_rows=("K9", "K10"), category="report", runs_last=True)

ALTERNATIVES = {  # name in Keras -> advice in English and Chinese
    "utils.multi_gpu_model": (
        "use one process per device and --distributed",
        "请每个设备一个进程,并使用 --distributed",
    ),
    "callbacks.TerminateOnNaN": (
        "overflow is read from the device: use NPULossScaleOptimizer",
        "溢出由设备状态给出:请使用 NPULossScaleOptimizer",
    ),
    "layers.CuDNNLSTM": ("use LSTM, or npu_dynamic_rnn's DynamicRNN", "请改用 LSTM 或 DynamicRNN"),
    "layers.CuDNNGRU": ("use GRU, or npu_dynamic_rnn's DynamicGRUV2", "请改用 GRU 或 DynamicGRUV2"),
}
UNSUPPORTED = tuple(f"{root}.{name}" for root in ("tensorflow.keras", "keras") for name in ALTERNATIVES)
EAGER = tuple(f"tensorflow.{name}" for name in ("enable_eager_execution", "enable_v2_behavior", "executing_eagerly"))


@rule.use(*UNSUPPORTED)
def report_unsupported(site: Site) -> None:
    name = next(name for name in ALTERNATIVES if site.name.endswith(f".{name}"))
    english, chinese = ALTERNATIVES[name]
    short = name.rpartition(".")[2]
    site.request_review(
        f"{short} has no counterpart on the accelerator: {english}", zh=f"昇腾不支持 {short}:{chinese}", risk="high"
    )


@rule.call("tensorflow.keras.mixed_precision.*")
def report_policy(site: Site) -> None:
    site.request_review(
        "Keras' mixed precision policies have no effect on the accelerator: choose one with --precision",
        zh="Keras 混合精度策略在昇腾上不生效:请用 --precision 选择精度模式",
        risk="high",
    )


@rule.call(*EAGER)
def report_eager(site: Site) -> None:
    """Report a call that enables eager execution; advise on `executing_eagerly()`."""
    is_query = site.name.endswith("executing_eagerly")
    report = site.advise if is_query else site.request_review
    report(
        "eager execution is not supported: only graphs are compiled for the accelerator",
        zh="不支持 Eager 模式:仅计算图可编译到昇腾执行",
        risk="low" if is_query else "high",
    )


@rule.method("compile")
def report_eager_model(site: Site) -> None:
    keyword = site.keyword("run_eagerly")
    if keyword is not None and is_constant(keyword.value, True) and _keras.is_model(site, site.node.func.value):
        site.request_review(
            "run_eagerly is not supported: only graphs are compiled for the accelerator",
            zh="不支持 run_eagerly:仅计算图可编译到昇腾执行",
            risk="high",
        )
