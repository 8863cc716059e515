"""Symbols of TensorFlow 1.15 and their support on the NPU, for those of the vendor's table that training scripts use.

A symbol that is not listed may work or not. A listed symbol without a `rule` of its own is reported by the rule
`unsupported_api`. A name that ends with `.*` stands for all names below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from viaduct.cards.limits import Risk

Support = Literal["after migration", "no effect", "unsupported", "under analysis"]
"""Support in the words of the vendor's table. after migration: supported, but the script has to be changed for it."""


@dataclass(frozen=True)
class Symbol:
    """Symbol of TensorFlow 1.15 and its support on the NPU."""

    name: str
    support: Support
    rule: str = ""  # module of rules/tf1 that handles the symbol
    advice: str = ""  # message of `unsupported_api`, for a symbol without a rule
    advice_zh: str = ""
    risk: Risk = "high"


def make_symbols(
    names: tuple[str, ...],
    support: Support,
    english: str = "",
    chinese: str = "",
    rule: str = "",
    risk: Risk = "high",
) -> list[Symbol]:
    """Return the symbols of these names, to which `tensorflow.` is added, with the same values in all other fields."""
    return [Symbol(f"tensorflow.{name}", support, rule, english, chinese, risk) for name in names]


CANNED_ESTIMATORS = tuple(
    f"estimator.{family}{kind}"
    for family in ("Baseline", "DNN", "DNNLinearCombined", "Linear")
    for kind in ("Classifier", "Regressor")
)
FINITE_CHECKS = tuple(f"{module}{name}" for module in ("", "math.") for name in ("is_finite", "is_inf", "is_nan"))
STRATEGIES = ("MirroredStrategy", "OneDeviceStrategy", "experimental.MultiWorkerMirroredStrategy")
RANDOM_GENERATORS = (
    "random.experimental.Generator", "random.experimental.create_rng_state",
    "random.experimental.get_global_generator", "random.experimental.set_global_generator",
)  # fmt: skip
TPU_FUNCTIONS = tuple(
    f"estimator.tpu.{name}"
    for name in (
        "rewrite", "replicate", "shard", "batch_parallel", "initialize_system", "shutdown_system",
        "outside_compilation", "cross_replica_sum", "bfloat16_scope", "core",
    )
)  # fmt: skip
SYMBOLS: tuple[Symbol, ...] = (
    *make_symbols(("estimator.RunConfig",), "after migration", rule="estimator_run_config"),
    *make_symbols(("estimator.Estimator",), "after migration", rule="estimator_class"),
    *make_symbols(CANNED_ESTIMATORS, "after migration", rule="estimator_canned"),
    *make_symbols(("estimator.tpu.TPUEstimator", "estimator.tpu.RunConfig"), "after migration", rule="tpu_estimator"),
    *make_symbols(
        ("estimator.tpu.TPUEstimatorSpec", "estimator.tpu.CrossShardOptimizer"), "after migration", rule="tpu_spec"
    ),
    *make_symbols(("Session", "InteractiveSession"), "after migration", rule="session_config"),
    *make_symbols(("train.MonitoredTrainingSession",), "after migration", rule="session_config"),
    *make_symbols(("nn.dropout",), "after migration", rule="dropout"),
    *make_symbols(tuple(f"distribute.{name}" for name in STRATEGIES), "after migration", rule="distribute_strategy"),
    *make_symbols(("train.experimental.FixedLossScale",), "after migration", rule="loss_scale_managers"),
    *make_symbols(
        ("train.experimental.MixedPrecisionLossScaleOptimizer",), "after migration", rule="loss_scale_optimizer"
    ),
    *make_symbols(
        ("train.experimental.enable_mixed_precision_graph_rewrite",), "after migration", rule="precision_graph_rewrite"
    ),
    *make_symbols(("GPUOptions",), "no effect", rule="session_gpu_options"),
    *make_symbols(("WholeFileReader", "LMDBReader", "IdentityReader"), "unsupported", rule="dataset_advice"),
    *make_symbols(FINITE_CHECKS, "unsupported", rule="model_advice"),
    *make_symbols(("enable_eager_execution", "enable_v2_behavior"), "unsupported", rule="keras_unsupported"),
    *make_symbols(("keras.layers.CuDNNLSTM", "keras.layers.CuDNNGRU"), "under analysis", rule="keras_unsupported"),
    *make_symbols(("contrib.cudnn_rnn.CudnnLSTM", "contrib.cudnn_rnn.CudnnGRU"), "unsupported", rule="model_advice"),
    *make_symbols(("train.SyncReplicasOptimizer", "train.Server"), "unsupported", rule="distribute_servers"),
    *make_symbols(("distribute.experimental.TPUStrategy",), "unsupported", rule="distribute_servers"),
    *make_symbols(
        TPU_FUNCTIONS,
        "unsupported",
        "there is no TPU: remove it, or make sure that this branch is not taken",
        "没有 TPU:请删除,或确保不会执行到该分支",
    ),
    *make_symbols(
        ("distribute.cluster_resolver.TPUClusterResolver", "contrib.cluster_resolver.TPUClusterResolver"),
        "unsupported",
        "there is no TPU: make sure that this branch is not taken",
        "没有 TPU:请确保不会执行到该分支",
        risk="medium",
    ),
    *make_symbols(
        RANDOM_GENERATORS,
        "under analysis",
        "its kernels are not confirmed for the device: use tf.random.uniform or tf.random.normal with a seed",
        "设备上未确认支持:请使用带 seed 的 tf.random.uniform 或 tf.random.normal",
    ),
    *make_symbols(
        ("CriticalSection",),
        "under analysis",
        "not confirmed for the device: keep it out of the training graph",
        "设备上未确认支持:请勿放入训练图",
        risk="medium",
    ),
    *make_symbols(
        ("contrib.nccl.*",),
        "unsupported",
        "NCCL supports NVIDIA GPUs only: use hccl_ops.allreduce, or NPUDistributedOptimizer",
        "NCCL 仅支持 NVIDIA 设备:请使用 hccl_ops.allreduce 或 NPUDistributedOptimizer",
    ),
    *make_symbols(
        ("load_op_library", "load_library"),
        "under analysis",
        "this library has compiled operators, perhaps for the host and CUDA only: build them for the device",
        "该库含已编译的算子,可能只有主机和 CUDA 内核:请为设备编译",
    ),
    *make_symbols(
        ("contrib.tensorrt.*", "python.compiler.tensorrt.*"),
        "unsupported",
        "TensorRT is NVIDIA's: convert the frozen graph with the accelerator's own compiler",
        "TensorRT 仅支持 NVIDIA 设备:请使用昇腾的模型转换工具",
    ),
    *make_symbols(
        ("test.is_gpu_available", "test.gpu_device_name", "python.client.device_lib.list_local_devices"),
        "no effect",
        "it finds no GPU, and the accelerator is not listed: see where the answer leads",
        "查询不到 GPU,也不会列出昇腾设备:请检查后续分支",
        risk="medium",
    ),
    *make_symbols(
        ("config.experimental.list_physical_devices", "config.list_physical_devices"),
        "no effect",
        "it lists no GPU, and the accelerator is not listed: see where the answer leads",
        "列不出 GPU,也不会列出昇腾设备:请检查后续分支",
        risk="low",
    ),
)


SYMBOLS_BY_NAME = {symbol.name: symbol for symbol in SYMBOLS}


def find_symbol(name: str) -> Symbol | None:
    """Return the symbol with a qualified name, or the `prefix.*` that stands for it; else None."""
    symbol = SYMBOLS_BY_NAME.get(name)
    while symbol is None and "." in name:
        name = name.rpartition(".")[0]
        symbol = SYMBOLS_BY_NAME.get(f"{name}.*")
    return symbol


def list_names_without_rule() -> tuple[str, ...]:
    return tuple(symbol.name for symbol in SYMBOLS if not symbol.rule)
