"""Documented limits of the accelerators, with the framework and the reason of each, in English and Chinese.

`viaduct rehearse`, which runs a migrated script on the CPU in place of the accelerator, enforces them
(`rehearsal/limits.py`). The table of docs/rehearse.md is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from viaduct.cards import MLU, NPU

Stage = Literal["torch", "tf1", "both"]
"""Part of the rehearsal that enforces a limit: that for scripts of PyTorch, that for TensorFlow 1, or both."""
Risk = Literal["high", "medium", "low"]
"""Risk that a script fails or computes something else if it is not changed."""


@dataclass(frozen=True)
class Limit:
    """One documented limit and its reason in English and Chinese."""

    stage: Stage
    reason: str
    zh: str


LIMITS: dict[str, Limit] = {
    # Name of the limit in a rehearsal's findings -> limit. PyTorch first, then TensorFlow 1, as in docs/rehearse.md.
    "float64": Limit(
        "both",
        "The cores compute in float16, bfloat16 and float32; float64 and complex128 have few operators or none.",
        "计算核心支持 float16、bfloat16 和 float32；float64 与 complex128 不支持，或仅限少数算子。",
    ),
    "data-parallel": Limit(
        "torch",
        "torch.nn.DataParallel drives several cards from one process, which the plug-ins do not support.",
        "torch.nn.DataParallel 由一个进程驱动多张卡，插件不支持这种方式。",
    ),
    "visible-devices": Limit(
        "both",
        f"{NPU.visible_variable} must list numbers in ascending order; with any other list no device is visible.",
        f"{NPU.visible_variable} 只能是严格递增的数字，以逗号分隔；否则可见设备数为 0。",
    ),
    "cuda-left": Limit(
        "torch",
        "There is no CUDA on the machine: CUDA devices, torch.cuda and .cuda() fail there, autocast is off.",
        "目标机器上没有 CUDA：CUDA 设备、torch.cuda 与 .cuda() 都会失败，autocast 不起作用。",
    ),
    "nccl-left": Limit(
        "torch",
        f"NCCL supports NVIDIA GPUs only; the backend is {NPU.backend} on an NPU and {MLU.backend} on an MLU.",
        f"NCCL 只支持 NVIDIA 卡；NPU 的集合通信后端是 {NPU.backend}，MLU 是 {MLU.backend}。",
    ),
    "map-location": Limit(
        "torch",
        "A checkpoint that was saved on CUDA cannot be read without map_location where there is no CUDA.",
        "没有 CUDA 时，不给 map_location 就无法读取在 CUDA 上保存的检查点。",
    ),
    "capability": Limit(
        "torch",
        "get_device_capability returns None on an NPU, and device properties have no major and minor.",
        "NPU 上 get_device_capability 返回 None，设备属性中没有 major 和 minor。",
    ),
    "compile": Limit(
        "torch",
        "torch.compile needs a backend of the card; the default one generates code for CPUs and NVIDIA's cards.",
        "torch.compile 需要该卡自己的后端；默认后端只为 CPU 和 NVIDIA 卡生成代码。",
    ),
    "unsupported-name": Limit(
        "torch",
        "The plug-in has no counterpart of this name of torch.cuda.",
        "插件中没有 torch.cuda 的这个名字的对应物。",
    ),
    "static-shapes": Limit(
        "tf1",
        "A training graph is compiled once for fixed shapes; a dimension that changes or is unknown is not compiled.",
        "训练图按固定形状编译一次；变化或未知的维度无法编译。",
    ),
    "drop-remainder": Limit(
        "tf1",
        "A smaller last batch has another shape, and the graph is compiled for one: batches need drop_remainder=True.",
        "最后一个不满的 batch 是另一种形状，而图只有一种：batch 需要 drop_remainder=True。",
    ),
    "remapping": Limit(
        "tf1",
        "Grappler's remapping fuses operators into ones the card has no kernel for; it must be OFF.",
        "Grappler 的 remapping 会融合出卡上没有的算子；必须设为 OFF。",
    ),
    "rewrite-options": Limit(
        "tf1",
        "XLA and Grappler's memory, layout and mixed-precision passes rewrite the graph for other devices.",
        "XLA 以及 Grappler 的内存、布局和混合精度优化是为其他设备改写图的。",
    ),
    "parameter-map": Limit(
        "tf1",
        "NpuOptimizer reads known keys of its parameter_map, each from one field; others are errors or are ignored.",
        "NpuOptimizer 只读取 parameter_map 中已知的键，且各有固定字段；其他的会报错或被忽略。",
    ),
    "npu-optimizer": Limit(
        "tf1",
        "A session without the custom optimizer NpuOptimizer runs on the host, not on the NPU.",
        "没有自定义优化器 NpuOptimizer 的 session 会在主机上运行，而不是 NPU。",
    ),
    "rank-before-init": Limit(
        "tf1",
        "Rank and size are known only after communication is initialised: run initialize_system first.",
        "通信初始化之后才能查询 rank 和 size：先运行 initialize_system。",
    ),
    "session-not-closed": Limit(
        "tf1",
        "A session that is not closed keeps the NPU's resources, and the process does not end cleanly.",
        "未关闭的 session 会占住 NPU 资源，进程无法干净退出。",
    ),
    "run-config": Limit(
        "tf1",
        "NPURunConfig does not know every argument of RunConfig, and takes them by keyword.",
        "NPURunConfig 不支持 RunConfig 的全部参数，且参数须以关键字给出。",
    ),
    "config-class": Limit(
        "tf1",
        "NPUEstimator takes an NPURunConfig, not an Estimator's RunConfig.",
        "NPUEstimator 需要 NPURunConfig，而不是 RunConfig。",
    ),
    "job-id": Limit(
        "tf1",
        "The NPU's job needs JOB_ID in the environment, or a job file.",
        "NPU 作业需要环境变量 JOB_ID，或作业文件。",
    ),
    "gpu-device": Limit(
        "tf1",
        "The machine has no GPU: a device string that names one, or GPU options, mean nothing there.",
        "目标机器没有 GPU：GPU 设备字符串或 GPU 选项在那里没有意义。",
    ),
    "step-multiples": Limit(
        "tf1",
        "With iterations_per_loop N the host sees every Nth step: steps, checkpoints and hooks are multiples of N.",
        "iterations_per_loop 为 N 时，主机每 N 步才看到一次：步数、检查点和 hook 间隔必须是 N 的倍数。",
    ),
    "eager": Limit(
        "tf1",
        "The adapter for TensorFlow 1 compiles graphs; it does nothing in eager mode.",
        "TensorFlow 1 适配器编译的是图；在 eager 模式下不起作用。",
    ),
    "reduction-name": Limit(
        "tf1",
        f"{NPU.backend} reduces by max, min, prod or sum; a mean is a sum that is divided.",
        f"{NPU.backend} 的归约只有 max、min、prod、sum；求平均要用 sum 再除。",
    ),
    "collective-dtype": Limit(
        "tf1",
        f"{NPU.backend} sends real numbers, not bool, string or complex tensors; it reduces no uint8, uint16, uint32.",
        f"{NPU.backend} 只传输实数类型，不支持 bool、字符串和复数；归约不支持 uint8、uint16 和 uint32。",
    ),
}
