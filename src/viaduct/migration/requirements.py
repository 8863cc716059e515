"""What a target device requires of a script. Each rule names the requirement that it serves (`target_needs=`).

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


REQUIREMENTS = (
    Requirement("files", "source files analysed", "源文件已分析"),
    # ---- TensorFlow 1
    Requirement("sessions", "sessions configured for the device", "会话已配置到设备"),
    Requirement("keras_sessions", "Keras runs in a configured session", "Keras 使用已配置的会话"),
    Requirement("closing", "sessions closed", "会话已关闭"),
    Requirement("compiler", "TensorFlow's own compiler off", "XLA 已关闭"),
    Requirement("estimators", "estimators of the device", "Estimator 已替换"),
    Requirement("run_configs", "run configurations of the device", "运行配置已替换"),
    Requirement("batches", "batches of one size (drop_remainder)", "批大小固定(drop_remainder)"),
    Requirement("shards", "data sharded by rank", "数据按 rank 切分"),
    Requirement("optimizers", "gradients brought together over ranks", "梯度在各 rank 间聚合"),
    Requirement("broadcast", "variables broadcast from rank 0", "变量由 rank 0 广播"),
    Requirement(
        "communication", "communication of the device, not Horovod's or a strategy's", "使用设备自身的集合通信"
    ),
    Requirement("placement", "device strings of TensorFlow", "TensorFlow 设备字符串"),
    Requirement("loss_scale", "mixed precision of the device", "混合精度"),
    Requirement("tensorflow_functions", "TensorFlow functions that the device runs", "设备支持的 TensorFlow 接口"),
    # ---- PyTorch
    Requirement("plugin", "plug-in imported", "已导入插件"),
    Requirement("device_calls", "calls of torch.cuda", "torch.cuda 调用"),
    Requirement("moves", "tensors and modules moved to the device", "张量与模块已移至设备"),
    Requirement("device_strings", "device strings", "设备字符串"),
    Requirement("backend", "collective backend", "集合通信后端"),
    Requirement("amp", "mixed precision (AMP)", "混合精度(AMP)"),
    Requirement("checkpoints", "checkpoints loaded without CUDA", "检查点加载不依赖 CUDA"),
    Requirement("visible_devices", "visible devices chosen", "可见设备已选择"),
    Requirement("data_parallel", "one process a device", "每设备一个进程"),
    Requirement("profiling", "profiler of the device", "性能分析"),
    Requirement("trainers", "trainer libraries on the device", "训练框架使用该设备"),
    Requirement("torch_functions", "operators, kernels and packages that the device has", "设备支持的算子与软件包"),
    Requirement("other", "other places", "其他"),
)
REQUIREMENTS_BY_NAME = {requirement.name: requirement for requirement in REQUIREMENTS}
