"""Names of the NPU's TensorFlow 1 adapter (npu_bridge), and the module that defines each.

    full_name("NPURunConfig")    # npu_bridge.estimator.npu.npu_config.NPURunConfig

The tables are from the adapter's public source (TensorFlow 1.15).
"""

from __future__ import annotations

from viaduct.cards import NPU, PLUGINS

NPU_BRIDGE, HCCL = NPU.tensorflow_modules  # top-level modules of the adapter: npu_bridge, and hccl for the collectives
ESTIMATOR = f"{NPU_BRIDGE}.estimator.npu"
NPU_INIT = f"{NPU_BRIDGE}.npu_init"  # module whose star import binds most names of the adapter
HCCL_API = f"{HCCL}.manage.api"  # module of functions for ranks, sizes and groups
HCCL_OPERATORS = f"{NPU_BRIDGE}.{HCCL}.hccl_ops"  # collectives as operators of a graph: allreduce, broadcast, allgather
# Prefixes of qualified names that may be used only after communication was started (`initialize_system`).
COLLECTIVE_PREFIXES = (f"{HCCL_API}.", f"{NPU_BRIDGE}.{HCCL}.")
MODULES: dict[str, tuple[str, ...]] = {
    f"{ESTIMATOR}.npu_config": (
        "NPURunConfig", "ProfilingConfig", "DumpConfig", "MemoryConfig", "DynamicInputConfig", "ExperimentalConfig",
        "GraphMemoryOptimizeConfig", "NpuExecutePlacement", "decorator_tf_session",
    ),
    f"{ESTIMATOR}.npu_estimator": ("NPUEstimator", "NPUEstimatorSpec"),
    f"{ESTIMATOR}.npu_optimizer": (
        "NPUDistributedOptimizer", "NPUOptimizer", "KerasDistributeOptimizer", "npu_distributed_optimizer_wrapper",
        "npu_allreduce", "allreduce",
    ),
    f"{ESTIMATOR}.npu_hook": (
        "NPUBroadcastGlobalVariablesHook", "NPUCheckpointSaverHook", "SetIterationsVarHook", "NPUShutDownHook",
        "NPUOutputTensorHook", "TellMeStepOrLossHook",
    ),
    f"{ESTIMATOR}.npu_callbacks": ("NPUBroadcastGlobalVariablesCallback",),
    f"{ESTIMATOR}.npu_loss_scale_manager": ("FixedLossScaleManager", "ExponentialUpdateLossScaleManager"),
    f"{ESTIMATOR}.npu_loss_scale_optimizer": ("NPULossScaleOptimizer",),
    ESTIMATOR: (
        "npu_scope", "npu_strategy", "npu_rnn", "npu_plugin", "keras_to_npu", "util", "npu_convert_dropout",
        "npu_dynamic_rnn",
    ),
    f"{NPU_BRIDGE}.estimator": ("npu_ops",),
    f"{NPU_BRIDGE}.estimator.npu_unary_ops": ("npu_unary_ops",),
    f"{NPU_BRIDGE}.{HCCL}": ("hccl_ops",),
    HCCL_API: (
        "create_group", "destroy_group", "get_rank_size", "get_local_rank_size", "get_rank_id", "get_local_rank_id",
        "get_world_rank_from_group_rank", "get_group_rank_from_world_rank",
    ),
    f"{HCCL}.split.api": ("set_split_strategy_by_idx", "set_split_strategy_by_size"),
    NPU_INIT: (
        "npu_hooks_append", "npu_callbacks_append", "npu_config_proto", "npu_graph_options", "npu_optimizer_options",
        "npu_run_config_init", "set_keras_session_npu_config", "init_resource", "shutdown_resource",
        "close_session", "get_npu_rank_id", "get_npu_local_rank_id", "get_npu_rank_size", "get_npu_local_rank_size",
        "npu_keras_optimizer", "npu_tf_optimizer", "npu_clear_session", "NpuEmptyHook", "experimental_options",
    ),
    "tensorflow.core.protobuf.rewriter_config_pb2": ("RewriterConfig",),
    "tensorflow.core.protobuf": ("rewriter_config_pb2",),
}  # fmt: skip
DEFINING_MODULE = {name: module for module, names in MODULES.items() for name in names}  # module that defines each name
# Names that `from npu_bridge.npu_init import *` does not bind.
NOT_STARRED = {"ExperimentalConfig", "GraphMemoryOptimizeConfig", "NpuExecutePlacement", "allreduce", "NPUShutDownHook"}
NOT_STARRED |= {"npu_convert_dropout", "npu_dynamic_rnn"}
# Names that the star import binds and a migrated file may use -> qualified names.
STAR_NAMES = {name: f"{module}.{name}" for name, module in DEFINING_MODULE.items() if name not in NOT_STARRED}
STAR_NAMES |= {"tf": "tensorflow", "os": "os"}
# All names that the star import binds, overwriting a file's own objects -> qualified names.
STAR_BINDINGS = STAR_NAMES | {
    "session": "tensorflow.python.client.session",
    "session_run_hook": "tensorflow.python.training.session_run_hook",
    "config_pb2": "tensorflow.core.protobuf.config_pb2",
    "backend": "tensorflow.keras.backend",
    "npu_embedding": f"{NPU_BRIDGE}.embedding.npu_embedding",
}
VENDOR_MODULES = (NPU_BRIDGE, HCCL, *PLUGINS)  # top-level modules of the NPU's and the MLU's software


def full_name(name: str) -> str:
    """Return the qualified name of a name in `DEFINING_MODULE`, such as `NPURunConfig` or `npu_plugin`."""
    return f"{DEFINING_MODULE[name]}.{name}"
