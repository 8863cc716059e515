"""Support of TensorFlow 1.15's symbols on the NPU: the part of the vendor's table that concerns training scripts.

A symbol that is not listed may work or not. A listed symbol without its own `rule` is reported by the rule
`unsupported_api`. A name that ends with `.*` stands for all names below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from viaduct.cards.limits import Risk

Support = Literal["after migration", "no effect", "unsupported", "under analysis"]


@dataclass(frozen=True)
class Symbol:
    """Symbol of TensorFlow 1.15 and its support on the NPU."""

    name: str
    support: Support
    rule: str = ""  # rule of tf1 that handles it
    advice: str = ""  # if there is no rule
    advice_zh: str = ""
    risk: Risk = "high"


def entries(
    names: tuple[str, ...],
    support: Support,
    english: str = "",
    chinese: str = "",
    rule: str = "",
    risk: Risk = "high",
) -> list[Symbol]:
    """Return symbols below `tensorflow.` that share all other facts."""
    return [Symbol(f"tensorflow.{name}", support, rule, english, chinese, risk) for name in names]


CANNED_ESTIMATORS = tuple(
    f"estimator.{family}{kind}"
    for family in ("Baseline", "DNN", "DNNLinearCombined", "Linear")
    for kind in ("Classifier", "Regressor")
)
FINITE_CHECKS = tuple(f"{home}{name}" for home in ("", "math.") for name in ("is_finite", "is_inf", "is_nan"))
STRATEGIES = ("MirroredStrategy", "OneDeviceStrategy", "experimental.MultiWorkerMirroredStrategy")
RANDOM_GENERATORS = (
    *("random.experimental.Generator", "random.experimental.create_rng_state"),
    *("random.experimental.get_global_generator", "random.experimental.set_global_generator"),
)
TPU_FUNCTIONS = tuple(
    f"estimator.tpu.{name}"
    for name in (
        *("rewrite", "replicate", "shard", "batch_parallel", "initialize_system", "shutdown_system"),
        *("outside_compilation", "cross_replica_sum", "bfloat16_scope", "core"),
    )
)
SYMBOLS: tuple[Symbol, ...] = (
    *entries(("estimator.RunConfig",), "after migration", rule="estimator_run_config"),
    *entries(("estimator.Estimator",), "after migration", rule="estimator_class"),
    *entries(CANNED_ESTIMATORS, "after migration", rule="estimator_canned"),
    *entries(("estimator.tpu.TPUEstimator", "estimator.tpu.RunConfig"), "after migration", rule="tpu_estimator"),
    *entries(
        ("estimator.tpu.TPUEstimatorSpec", "estimator.tpu.CrossShardOptimizer"), "after migration", rule="tpu_spec"
    ),
    *entries(("Session", "InteractiveSession"), "after migration", rule="session_config"),
    *entries(("train.MonitoredTrainingSession",), "after migration", rule="session_config"),
    *entries(("nn.dropout",), "after migration", rule="dropout"),
    *entries(tuple(f"distribute.{name}" for name in STRATEGIES), "after migration", rule="distribute_strategy"),
    *entries(("train.experimental.FixedLossScale",), "after migration", rule="loss_scale_managers"),
    *entries(("train.experimental.MixedPrecisionLossScaleOptimizer",), "after migration", rule="loss_scale_optimizer"),
    *entries(
        ("train.experimental.enable_mixed_precision_graph_rewrite",), "after migration", rule="precision_graph_rewrite"
    ),
    *entries(("GPUOptions",), "no effect", rule="session_gpu_options"),
    *entries(("WholeFileReader", "LMDBReader", "IdentityReader"), "unsupported", rule="dataset_advice"),
    *entries(FINITE_CHECKS, "unsupported", rule="model_advice"),
    *entries(("enable_eager_execution", "enable_v2_behavior"), "unsupported", rule="keras_unsupported"),
    *entries(("keras.layers.CuDNNLSTM", "keras.layers.CuDNNGRU"), "under analysis", rule="keras_unsupported"),
    *entries(("contrib.cudnn_rnn.CudnnLSTM", "contrib.cudnn_rnn.CudnnGRU"), "unsupported", rule="model_advice"),
    *entries(("train.SyncReplicasOptimizer", "train.Server"), "unsupported", rule="distribute_servers"),
    *entries(("distribute.experimental.TPUStrategy",), "unsupported", rule="distribute_servers"),
    *entries(
        TPU_FUNCTIONS,
        "unsupported",
        "there is no TPU: remove it, or make sure that this branch is not taken",
        "没有 TPU:请删除,或确保不会执行到该分支",
    ),
    *entries(
        ("distribute.cluster_resolver.TPUClusterResolver", "contrib.cluster_resolver.TPUClusterResolver"),
        "unsupported",
        "there is no TPU: make sure that this branch is not taken",
        "没有 TPU:请确保不会执行到该分支",
        risk="medium",
    ),
    *entries(
        RANDOM_GENERATORS,
        "under analysis",
        "its kernels are not confirmed for the device: use tf.random.uniform or tf.random.normal with a seed",
        "设备上未确认支持:请使用带 seed 的 tf.random.uniform 或 tf.random.normal",
    ),
    *entries(
        ("CriticalSection",),
        "under analysis",
        "not confirmed for the device: keep it out of the training graph",
        "设备上未确认支持:请勿放入训练图",
        risk="medium",
    ),
    *entries(
        ("contrib.nccl.*",),
        "unsupported",
        "NCCL supports NVIDIA GPUs only: use hccl_ops.allreduce, or NPUDistributedOptimizer",
        "NCCL 仅支持 NVIDIA 设备:请使用 hccl_ops.allreduce 或 NPUDistributedOptimizer",
    ),
    *entries(
        ("contrib.tensorrt.*", "python.compiler.tensorrt.*"),
        "unsupported",
        "TensorRT is NVIDIA's: convert the frozen graph with the accelerator's own compiler",
        "TensorRT 仅支持 NVIDIA 设备:请使用昇腾的模型转换工具",
    ),
    *entries(
        ("test.is_gpu_available", "test.gpu_device_name", "python.client.device_lib.list_local_devices"),
        "no effect",
        "it finds no GPU, and the accelerator is not listed: see where the answer leads",
        "查询不到 GPU,也不会列出昇腾设备:请检查后续分支",
        risk="medium",
    ),
    *entries(
        ("config.experimental.list_physical_devices", "config.list_physical_devices"),
        "no effect",
        "it lists no GPU, and the accelerator is not listed: see where the answer leads",
        "列不出 GPU,也不会列出昇腾设备:请检查后续分支",
        risk="low",
    ),
)


@lru_cache(maxsize=1)
def by_name() -> dict[str, Symbol]:
    return {symbol.name: symbol for symbol in SYMBOLS}


def find_symbol(name: str) -> Symbol | None:
    """Return the entry for a qualified name or for a `prefix.*` of it; else None."""
    symbol = by_name().get(name)
    while symbol is None and "." in name:
        name = name.rpartition(".")[0]
        symbol = by_name().get(f"{name}.*")
    return symbol


def names_without_rule() -> tuple[str, ...]:
    return tuple(symbol.name for symbol in SYMBOLS if not symbol.rule)
