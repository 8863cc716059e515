"""What a target device requires of a script, and the rules that change or report code for each requirement.

The ledger of a migration counts, for each requirement, the places that fulfil it and those that still have to change.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One requirement."""

    name: str
    title: str  # as shown to the user: what is true of a script that fulfils it
    title_zh: str
    rules: tuple[str, ...] = ()  # names of the rules that change or report places which do not fulfil it


def tf1(names: str) -> tuple[str, ...]:
    """Return the full names of rules for TensorFlow 1. `names`: separated by spaces, without `tf1.`."""
    return tuple(f"tf1.{name}" for name in names.split())


def torch(names: str) -> tuple[str, ...]:
    """Return the full names of rules for PyTorch. `names`: separated by spaces, without `torch.`."""
    return tuple(f"torch.{name}" for name in names.split())


REQUIREMENTS = (
    Requirement(
        "files", "source files analysed", "源文件已分析", ("engine.unparsable", "engine.left_alone", "engine.helper")
    ),
    # ---- TensorFlow 1
    Requirement(
        "sessions",
        "sessions configured for the device",
        "会话已配置到设备",
        tf1("session_config session_config_helper session_options session_graph_options session_grad_fusion"),
    ),
    Requirement(
        "keras_sessions",
        "Keras runs in a configured session",
        "Keras 使用已配置的会话",
        tf1("keras_session keras_clear_session"),
    ),
    Requirement("closing", "sessions closed", "会话已关闭", tf1("session_close")),
    Requirement("compiler", "TensorFlow's own compiler off", "XLA 已关闭", tf1("session_xla session_device_config")),
    Requirement(
        "estimators",
        "estimators of the device",
        "Estimator 已替换",
        tf1("estimator_class estimator_canned keras_estimator tpu_estimator tpu_spec estimator_steps"),
    ),
    Requirement("run_configs", "run configurations of the device", "运行配置已替换", tf1("estimator_run_config")),
    Requirement(
        "batches",
        "batches of one size (drop_remainder)",
        "批大小固定(drop_remainder)",
        tf1("dataset_drop_remainder dataset_batchers dataset_counts"),
    ),
    Requirement("shards", "data sharded by rank", "数据按 rank 切分", tf1("dataset_shard dataset_unsharded")),
    Requirement(
        "optimizers",
        "gradients brought together over ranks",
        "梯度在各 rank 间聚合",
        tf1(
            "distribute_optimizer distribute_gradients keras_distributed_optimizer horovod_optimizer "
            "horovod_compression distribute_sum distribute_sum_left"
        ),
    ),
    Requirement(
        "broadcast",
        "variables broadcast from rank 0",
        "变量由 rank 0 广播",
        tf1("distribute_broadcast keras_broadcast horovod_broadcast"),
    ),
    Requirement(
        "communication",
        "communication of the device, not Horovod's or a strategy's",
        "使用设备自身的集合通信",
        tf1(
            "lifecycle_init lifecycle_cycles distribute_environment distribute_strategy distribute_servers "
            "horovod_ranks horovod_lifecycle horovod_collectives horovod_import horovod_devices "
            "horovod_leftovers"
        ),
    ),
    Requirement(
        "placement",
        "device strings of TensorFlow",
        "TensorFlow 设备字符串",
        tf1("device_block mlu_devices mlu_options mlu_environment"),
    ),
    Requirement(
        "loss_scale",
        "mixed precision of the device",
        "混合精度",
        tf1("loss_scale_managers loss_scale_optimizer precision_graph_rewrite"),
    ),
    Requirement(
        "tensorflow_functions",
        "TensorFlow functions that the device runs",
        "设备支持的 TensorFlow 接口",
        tf1("unsupported_api debug_hooks keras_unsupported imports_report mlu_report any_left tensorflow2"),
    ),
    # ---- PyTorch
    Requirement("plugin", "plug-in imported", "已导入插件", torch("plugin imports patch_mode mlu_core unused_imports")),
    Requirement(
        "device_calls",
        "calls of torch.cuda",
        "torch.cuda 调用",
        torch(
            "cuda_api cuda_module cuda_strings cuda_unknown rng_state cuda_graphs nvtx capability properties "
            "backends_cuda"
        ),
    ),
    Requirement(
        "moves",
        "tensors and modules moved to the device",
        "张量与模块已移至设备",
        torch("cuda_method is_cuda unknown_program"),
    ),
    Requirement(
        "device_strings",
        "device strings",
        "设备字符串",
        torch(
            "device_string device_compare device_argparse device_integer device_key device_left any_device_text "
            "any_device_compare any_device_integer tensor_type default_tensor_type ddp"
        ),
    ),
    Requirement("backend", "collective backend", "集合通信后端", torch("backend backend_compare nccl_variables")),
    Requirement("amp", "mixed precision (AMP)", "混合精度(AMP)", torch("amp autocast autocast_state any_amp apex")),
    Requirement("checkpoints", "checkpoints loaded without CUDA", "检查点加载不依赖 CUDA", torch("map_location")),
    Requirement("visible_devices", "visible devices chosen", "可见设备已选择", torch("visible_devices")),
    Requirement("data_parallel", "one process a device", "每设备一个进程", torch("data_parallel data_parallel_ddp")),
    Requirement("profiling", "profiler of the device", "性能分析", torch("profiler autograd_profiler")),
    Requirement("trainers", "trainer libraries on the device", "训练框架使用该设备", torch("lightning")),
    Requirement(
        "torch_functions",
        "operators, kernels and packages that the device has",
        "设备支持的算子与软件包",
        torch("operators kernels packages double patch_limits vendor_code nvidia_runtime huggingface"),
    ),
    Requirement("other", "other places", "其他"),
)


REQUIREMENTS_BY_NAME = {requirement.name: requirement for requirement in REQUIREMENTS}
REQUIREMENT_BY_RULE = {rule: requirement.name for requirement in REQUIREMENTS for rule in requirement.rules}
"""Rule -> name of its requirement; the requirement of other rules is "other"."""
