"""Documented limits of the accelerators, with all sentences about each, in English and Chinese.

`viaduct rehearse`, which runs a migrated script on the CPU in place of the accelerator, enforces them
(`rehearsal/limits.py`). The table of docs/rehearse.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from viaduct.cards import MLU, NPU

Bilingual = tuple[str, str]
"""A text in English and in Chinese."""
LimitFramework = Literal["torch", "tf1", "both"]
"""Framework of the scripts for which a rehearsal enforces a limit."""
Risk = Literal["high", "medium", "low"]
"""Risk that a script fails or computes something else if it is not changed."""
SAME: Bilingual = ("", "")


@dataclass(frozen=True)
class Case:
    """One way to go beyond a limit that has several; SAME stands for the limit's own text."""

    action: Bilingual = SAME
    behaviour: Bilingual = SAME
    remedy: Bilingual = SAME


@dataclass(frozen=True)
class Limit:
    """One documented limit.

    `action`, `behaviour` and `remedy` are the sentences of a violation. Their {fields} are filled in when the violation
    is reported (`rehearsal/limits.py`); {title} is the name of the card in a sentence: NPU.
    """

    framework: LimitFramework
    reason: Bilingual  # why the card has this limit
    action: Bilingual  # what the script does
    behaviour: Bilingual  # what the card does then
    remedy: Bilingual  # what to write instead
    cases: Mapping[str, Case] = field(default_factory=dict)

    def choose_sentences(self, case: str, is_chinese: bool) -> tuple[str, str, str]:
        """Return action, behaviour and remedy in one language; `case` is a key of `cases`, or "" if none applies."""
        own = self.cases[case] if case else Case()
        texts = ((own.action, self.action), (own.behaviour, self.behaviour), (own.remedy, self.remedy))
        action, behaviour, remedy = ((first if first != SAME else general)[is_chinese] for first, general in texts)
        return action, behaviour, remedy


# Limits that `viaduct migrate` and other commands state too.
ASCENDING_DEVICES: Bilingual = (
    f"{NPU.visible_variable} must list numbers in strictly ascending order; with any other list no device is visible",
    f"{NPU.visible_variable} 只能是严格递增的数字，以逗号分隔；否则可见设备数为 0",
)
CAPABILITY_IS_NONE: Bilingual = (
    "get_device_capability returns None on an NPU, so comparing or indexing its result fails",
    "NPU 上 get_device_capability 返回 None，对结果比较或取下标会失败",
)
REMAPPING_FUSES: Bilingual = (
    "Grappler's remapping fuses operators into ones that the NPU has no kernel for",
    "Grappler 的 remapping 会融合出 NPU 没有的算子",
)

_NPU_FLOAT64: dict[str, Bilingual] = {
    "behaviour": (
        "The cores have no float64: the operator is not found, or runs on the slow AI CPU.",
        "计算核心不支持 float64：找不到该算子，或在较慢的 AI CPU 上执行。",
    ),
    "remedy": (
        "Create it in tf.float32, or cast its inputs to tf.float32.",
        "用 tf.float32 创建它，或把它的输入转换为 tf.float32。",
    ),
}
_MAKE_FOLDER: Bilingual = ("Make the folder first.", "先创建该目录。")
_WRITE_FIELD: Bilingual = (
    "Write parameter_map[{key!r}].{field} = … ({type}).",
    "写成 parameter_map[{key!r}].{field} = …（{type}）。",
)
_SET_ONE: Bilingual = ("Set one of them.", "只设置其中一个。")
_NO_TRACE: Bilingual = (
    "Profiling does not start, or gives no training trace.",
    "不会开始采集性能数据，或得不到训练轨迹。",
)
# Faults of the options in NpuOptimizer's parameter_map, which `rehearsal/tf1_stage/options.py` and `tracing.py` find.
_OPTION_FAULTS = {
    "unknown": Case(
        action=("NpuOptimizer has no option {key!r}.", "NpuOptimizer 没有选项 {key!r}。"),
        remedy=("Remove it.", "删除它。"),
    ),
    "similar": Case(
        action=("NpuOptimizer has no option {key!r}.", "NpuOptimizer 没有选项 {key!r}。"),
        remedy=("Closest is {closest!r}.", "最接近的是 {closest!r}。"),
    ),
    "no value": Case(
        action=("{key} is given without a value.", "{key} 没有值。"),
        remedy=_WRITE_FIELD,
    ),
    "field": Case(
        action=("{key} is given in the field .{actual}.", "{key} 写在了字段 .{actual} 中。"),
        remedy=_WRITE_FIELD,
    ),
    "choice": Case(
        action=("{key} is {value!r}.", "{key} 的值为 {value!r}。"),
        remedy=("It must be one of: {choices}.", "只能是以下之一：{choices}。"),
    ),
    "dump without path": Case(
        action=("A dump is requested without dump_path.", "请求了 dump，但没有 dump_path。"),
        remedy=(
            "Set parameter_map['dump_path'].s to a folder that exists.",
            "把 parameter_map['dump_path'].s 设为已存在的目录。",
        ),
    ),
    "dump path": Case(
        action=("dump_path {path!r} is no folder that can be written.", "dump_path {path!r} 不是可写的目录。"),
        remedy=_MAKE_FOLDER,
    ),
    "dump steps": Case(
        action=("dump_step is {steps!r}.", "dump_step 的值为 {steps!r}。"),
        remedy=("Write steps as 0|5|10 or 0|3-5, at most 100 of them.", "步数写成 0|5|10 或 0|3-5，最多 100 个。"),
    ),
    "two precision modes": Case(
        action=("precision_mode and precision_mode_v2 are both set.", "precision_mode 与 precision_mode_v2 都已设置。"),
        remedy=_SET_ONE,
    ),
    "mixlist": Case(
        action=(
            "modify_mixlist is set and the precision mode is {mode}.",
            "设置了 modify_mixlist，而精度模式为 {mode}。",
        ),
        remedy=("It needs a mixed mode: allow_mix_precision.", "它需要混合精度模式：allow_mix_precision。"),
    ),
    "two compressions": Case(
        action=(
            "enable_compress_weight and compress_weight_conf exclude each other.",
            "enable_compress_weight 与 compress_weight_conf 互斥。",
        ),
        remedy=_SET_ONE,
    ),
    "operator list": Case(
        action=(
            "optypelist_for_implmode is set without op_select_implmode.",
            "设置了 optypelist_for_implmode，但没有设置 op_select_implmode。",
        ),
        remedy=("Set both, or neither.", "两者都设置，或都不设置。"),
    ),
    "dynamic input": Case(
        action=("Of {names} only {present} is set.", "在 {names} 中只设置了 {present}。"),
        remedy=("Set all three, or none.", "三者都设置，或都不设置。"),
    ),
    "mixed loop": Case(
        action=(
            "iterations_per_loop is {iterations!r} with mix_compile_mode.",
            "使用 mix_compile_mode 时 iterations_per_loop 为 {iterations!r}。",
        ),
        remedy=("With mix_compile_mode it must be 1.", "使用 mix_compile_mode 时它必须为 1。"),
    ),
    "profiling text": Case(
        action=(
            "The session's profiling_options is not JSON: {text!r}.",
            "session 的 profiling_options 不是 JSON：{text!r}。",
        ),
        behaviour=_NO_TRACE,
        remedy=('Write {{"output":"…","training_trace":"on"}}.', '写成 {{"output":"…","training_trace":"on"}}。'),
    ),
    "profiling output": Case(
        action=(
            "The output of the session's profiling_options is {folder!r}, which is no folder.",
            "session 的 profiling_options 中的 output 为 {folder!r}，不是目录。",
        ),
        behaviour=_NO_TRACE,
        remedy=_MAKE_FOLDER,
    ),
    "profiling point": Case(
        action=(
            "In the session's profiling_options {point} is {name!r}, which is no operator of this graph.",
            "session 的 profiling_options 中的 {point} 为 {name!r}，不是该图的算子。",
        ),
        behaviour=_NO_TRACE,
        remedy=('Leave it empty: "".', '留空：""。'),
    ),
}

LIMITS: dict[str, Limit] = {
    # Name of the limit in a rehearsal's findings -> limit. PyTorch first, then TensorFlow 1, as in docs/rehearse.md.
    "float64": Limit(
        "both",
        reason=(
            "The cores compute in float16, bfloat16 and float32; float64 and complex128 have few operators or none.",
            "计算核心支持 float16、bfloat16 和 float32；float64 与 complex128 不支持，或仅限少数算子。",
        ),
        action=("A {dtype} tensor is made on the device.", "在设备上创建了 {dtype} 张量。"),
        behaviour=(
            "Most operators of the {title} have no float64: they fail, or go to the host and are slow.",
            "{title} 的大多数算子不支持 float64：会失败，或转到主机上执行而变慢。",
        ),
        remedy=(
            "Use torch.float32: .float(), dtype=torch.float32, or a float32 array. For complex128 use complex64.",
            "改用 torch.float32：.float()、dtype=torch.float32，或 float32 数组。complex128 改用 complex64。",
        ),
        cases={
            "operator": Case(action=("{operator} makes a {dtype} tensor.", "{operator} 生成了 {dtype} 张量。")),
            "graph operator": Case(
                action=("{operator} ({type}) computes in {dtype}.", "{operator}（{type}）以 {dtype} 计算。"),
                **_NPU_FLOAT64,
            ),
            "variable": Case(
                action=("{operator} ({type}) is {dtype}.", "{operator}（{type}）的类型是 {dtype}。"), **_NPU_FLOAT64
            ),
        },
    ),
    "data-parallel": Limit(
        "torch",
        reason=(
            "torch.nn.DataParallel drives several cards from one process, which the plug-ins do not support.",
            "torch.nn.DataParallel 由一个进程驱动多张卡，插件不支持这种方式。",
        ),
        action=("The model is wrapped in torch.nn.DataParallel.", "模型被包装为 torch.nn.DataParallel。"),
        behaviour=(
            "One process drives one {title}: replicas on several cards are not made, and the call fails.",
            "一个进程只驱动一张 {title}：不会在多张卡上创建副本，调用失败。",
        ),
        remedy=(
            "Use DistributedDataParallel with one process a card, or the model itself on one card.",
            "改用 DistributedDataParallel，每张卡一个进程；单卡时直接使用模型本身。",
        ),
    ),
    "visible-devices": Limit(
        "both",
        reason=(f"{ASCENDING_DEVICES[0]}.", f"{ASCENDING_DEVICES[1]}。"),
        action=("{variable} is {value!r}.", "{variable} 的值为 {value!r}。"),
        behaviour=("No device is visible to the process.", "进程看不到任何设备。"),
        remedy=(
            "Write {variable}={ascending}; a process chooses its card among these.",
            "写成 {variable}={ascending}；各进程在其中选用自己的卡。",
        ),
    ),
    "cuda-left": Limit(
        "torch",
        reason=(
            "There is no CUDA on the machine: CUDA devices, torch.cuda and .cuda() fail there, autocast is off.",
            "目标机器上没有 CUDA：CUDA 设备、torch.cuda 与 .cuda() 都会失败，autocast 不起作用。",
        ),
        action=("torch.cuda.{name} is called.", "调用了 torch.cuda.{name}。"),
        behaviour=("The machine has no CUDA: PyTorch raises an error here.", "目标机器没有 CUDA：PyTorch 在此处报错。"),
        remedy=(
            "Write torch.{device}, .{device}() and '{device}' for torch.cuda, .cuda() and 'cuda'.",
            "把 torch.cuda、.cuda() 和 'cuda' 改为 torch.{device}、.{device}() 和 '{device}'。",
        ),
        cases={
            "request": Case(action=("CUDA is requested.", "请求了 CUDA。")),
            "precision": Case(
                action=("{name} is made for CUDA.", "{name} 是为 CUDA 创建的。"),
                behaviour=(
                    "There is no CUDA: {name} switches itself off with a warning.",
                    "没有 CUDA：{name} 给出警告后不起作用。",
                ),
                remedy=("Write torch.amp.{name}('{device}', …).", "写成 torch.amp.{name}('{device}', …)。"),
            ),
        },
    ),
    "nccl-left": Limit(
        "torch",
        reason=(
            f"NCCL supports NVIDIA GPUs only; the backend is {NPU.backend} on an NPU and {MLU.backend} on an MLU.",
            f"NCCL 只支持 NVIDIA 卡；NPU 的集合通信后端是 {NPU.backend}，MLU 是 {MLU.backend}。",
        ),
        action=("The backend is {backend!r}.", "后端为 {backend!r}。"),
        behaviour=(
            "There is no NCCL, the {title} has {library}: the process group cannot be made.",
            "没有 NCCL，{title} 使用 {library}：无法创建进程组。",
        ),
        remedy=("Write '{replacement}' for '{backend}'.", "把 '{backend}' 改为 '{replacement}'。"),
    ),
    "map-location": Limit(
        "torch",
        reason=(
            "A checkpoint that was saved on CUDA cannot be read without map_location where there is no CUDA.",
            "没有 CUDA 时，不给 map_location 就无法读取在 CUDA 上保存的检查点。",
        ),
        action=(
            "torch.load is to put tensors of the checkpoint on {location!r}.",
            "torch.load 要把检查点中的张量放到 {location!r} 上。",
        ),
        behaviour=("There is no CUDA: torch.load fails.", "没有 CUDA：torch.load 失败。"),
        remedy=(
            "Write torch.load(…, map_location='cpu'), or '{device}'.",
            "写成 torch.load(…, map_location='cpu')，或 '{device}'。",
        ),
    ),
    "capability": Limit(
        "torch",
        reason=(
            "An NPU has no compute capability: neither the function nor the properties of the device give one.",
            "NPU 没有计算能力（compute capability）：函数和设备属性都不提供。",
        ),
        action=("get_device_capability is called.", "调用了 get_device_capability。"),
        behaviour=(f"{CAPABILITY_IS_NONE[0]}.", f"{CAPABILITY_IS_NONE[1]}。"),
        remedy=(
            "Decide by the device's name or by a feature: get_device_name(), is_bf16_supported().",
            "按设备名称或所需特性判断：get_device_name()、is_bf16_supported()。",
        ),
        cases={
            "property": Case(
                action=("{name!r} of the device's properties is read.", "读取了设备属性 {name!r}。"),
                behaviour=(
                    "An NPU's properties have no such attribute: the script fails here.",
                    "NPU 的设备属性中没有它：脚本在此处失败。",
                ),
            )
        },
    ),
    "compile": Limit(
        "torch",
        reason=(
            "torch.compile needs a backend of the card; the default one generates code for CPUs and NVIDIA's cards.",
            "torch.compile 需要该卡自己的后端；默认后端只为 CPU 和 NVIDIA 卡生成代码。",
        ),
        action=("torch.compile is called with the backend {backend!r}.", "调用 torch.compile 时的后端为 {backend!r}。"),
        behaviour=(
            "A backend that is not made for the {title} fails there or does nothing.",
            "不是为 {title} 编写的后端在那里会失败，或不起作用。",
        ),
        remedy=("Leave torch.compile out, or give the vendor's backend.", "去掉 torch.compile，或指定厂商的后端。"),
    ),
    "unsupported-name": Limit(
        "torch",
        reason=(
            "The plug-in has no counterpart of this name of torch.cuda.",
            "插件未提供与 torch.cuda 该接口对应的接口。",
        ),
        action=("torch.{device}.{name} is used.", "使用了 torch.{device}.{name}。"),
        behaviour=(
            "torch_{device} has no such name: the script fails here.",
            "torch_{device} 没有这个接口：脚本在此处失败。",
        ),
        remedy=(
            "Leave it out, or use what the vendor's documentation gives for torch.cuda.{name}.",
            "去掉它，或使用厂商文档中与 torch.cuda.{name} 对应的接口。",
        ),
    ),
    "static-shapes": Limit(
        "tf1",
        reason=(
            "A training graph is compiled once for fixed shapes; a dimension that changes or is unknown cannot be.",
            "训练图按固定形状编译一次；变化或未知的维度无法编译。",
        ),
        action=(
            "{tensor} is fed {shape}, and was fed {first_shape} before.",
            "{tensor} 此次输入的形状为 {shape}，之前为 {first_shape}。",
        ),
        behaviour=(
            "The graph was compiled for the first shape: it is compiled again for each other shape, or fails.",
            "图已按第一种形状编译：遇到其他形状会重新编译，或失败。",
        ),
        remedy=(
            "Feed the same shape in every step: leave the last, smaller batch out.",
            "每一步输入相同的形状：丢弃最后一个不满的 batch。",
        ),
        cases={
            "dataset": Case(
                action=(
                    "The training graph reads {tensor} of shape {shape} from its dataset.",
                    "训练图从数据集读取形状为 {shape} 的 {tensor}。",
                ),
                behaviour=(
                    "A graph with an unknown dimension is not compiled for the NPU's cores.",
                    "含未知维度的图无法为 NPU 的计算核心编译。",
                ),
                remedy=(
                    "Make batches with drop_remainder=True and give every dimension a size (set_shape).",
                    "用 drop_remainder=True 组成 batch，并给出每个维度的大小（set_shape）。",
                ),
            )
        },
    ),
    "drop-remainder": Limit(
        "tf1",
        reason=(
            "A smaller last batch has another shape, and the graph is compiled for one: batches need "
            "drop_remainder=True.",
            "最后一个不满的 batch 是另一种形状，而图只有一种：batch 需要 drop_remainder=True。",
        ),
        action=("{function} is called without drop_remainder=True.", "调用 {function} 时没有 drop_remainder=True。"),
        behaviour=(
            "The batch dimension is unknown: the graph is compiled for dynamic shapes, or fails in the last batch.",
            "batch 维度未知：图按动态形状编译，或在最后一个 batch 失败。",
        ),
        remedy=("Write {function}(…, drop_remainder=True).", "写成 {function}(…, drop_remainder=True)。"),
    ),
    "remapping": Limit(
        "tf1",
        reason=(f"{REMAPPING_FUSES[0]}; it must be OFF.", f"{REMAPPING_FUSES[1]}；必须设为 OFF。"),
        action=(
            "The session's config has NpuOptimizer, but leaves remapping on.",
            "session 的 config 中有 NpuOptimizer，但没有关闭 remapping。",
        ),
        behaviour=(
            "Fused operators such as _FusedConv2D have no kernel on the NPU: the graph does not compile.",
            "NPU 上没有 _FusedConv2D 等融合算子：图无法编译。",
        ),
        remedy=(
            "Set config.graph_options.rewrite_options.remapping = RewriterConfig.OFF.",
            "设置 config.graph_options.rewrite_options.remapping = RewriterConfig.OFF。",
        ),
    ),
    "rewrite-options": Limit(
        "tf1",
        reason=(
            "XLA and Grappler's memory, layout and mixed-precision passes rewrite the graph for other devices.",
            "XLA 以及 Grappler 的内存、布局和混合精度优化是为其他设备改写图的。",
        ),
        action=("The session's config sets {setting}.", "session 的 config 设置了 {setting}。"),
        behaviour=(
            "The graph that reaches the NPU's compiler is not the one it expects: parts of it do not compile.",
            "到达 NPU 编译器的图与其预期不符：部分图无法编译。",
        ),
        remedy=("Leave these options at their defaults.", "这些选项保留默认值。"),
        cases={
            "xla": Case(
                remedy=(
                    "Leave it out, or set it to tf.OptimizerOptions.OFF.",
                    "去掉它，或设为 tf.OptimizerOptions.OFF。",
                )
            ),
            "pruning": Case(remedy=("Remove that line.", "删除这一行。")),
            "mixed precision": Case(
                remedy=(
                    "Remove it, and set NpuOptimizer's option precision_mode.",
                    "去掉它，改用 NpuOptimizer 的选项 precision_mode。",
                )
            ),
            "pass off": Case(remedy=("Leave it at its default, ON.", "保留默认值 ON。")),
        },
    ),
    "parameter-map": Limit(
        "tf1",
        reason=(
            "NpuOptimizer reads known keys of its parameter_map, each from one field; others fail or are ignored.",
            "NpuOptimizer 只读取 parameter_map 中已知的键，且各有固定字段；其他的会报错或被忽略。",
        ),
        action=("An option of NpuOptimizer is invalid.", "NpuOptimizer 的一个选项无效。"),
        behaviour=("The option is ignored, or the session is not opened.", "该选项被忽略，或 session 无法打开。"),
        remedy=(
            "Give each option of NpuOptimizer in its field, with one of its values.",
            "NpuOptimizer 的每个选项写在其字段中，并取其允许的值。",
        ),
        cases=_OPTION_FAULTS,
    ),
    "npu-optimizer": Limit(
        "tf1",
        reason=(
            "A session without the custom optimizer NpuOptimizer runs on the host, not on the NPU.",
            "没有自定义优化器 NpuOptimizer 的 session 会在主机上运行，而不是 NPU。",
        ),
        action=(
            "This session trains, and its config has no NpuOptimizer.",
            "该 session 进行训练，而其 config 中没有 NpuOptimizer。",
        ),
        behaviour=(
            "The session runs on the host's CPU, and the NPU stays idle.",
            "session 在主机的 CPU 上运行，NPU 空闲。",
        ),
        remedy=(
            "Add the custom optimizer NpuOptimizer to config.graph_options.rewrite_options, or use npu_config_proto().",
            "在 config.graph_options.rewrite_options 中加入自定义优化器 NpuOptimizer，或使用 npu_config_proto()。",
        ),
    ),
    "rank-before-init": Limit(
        "tf1",
        reason=(
            "Rank and size are known only after communication is initialised: run initialize_system first.",
            "通信初始化之后才能查询 rank 和 size：先运行 initialize_system。",
        ),
        action=("{function} is called before communication is initialised.", "在通信初始化之前调用了 {function}。"),
        behaviour=("HCCL is not initialised yet: the call fails.", "HCCL 尚未初始化：调用失败。"),
        remedy=(
            "Run npu_ops.initialize_system() in an NPU session first, or read RANK_ID and RANK_SIZE.",
            "先在 NPU 的 session 中运行 npu_ops.initialize_system()，或读取 RANK_ID 和 RANK_SIZE。",
        ),
    ),
    "session-not-closed": Limit(
        "tf1",
        reason=(
            "A session that is not closed keeps the NPU's resources, and the process does not end cleanly.",
            "未关闭的 session 会占住 NPU 资源，进程无法干净退出。",
        ),
        action=("This session is still open at the script's end.", "脚本结束时该 session 仍未关闭。"),
        behaviour=(
            "The device graph is released in close(): without it the NPU's memory stays taken.",
            "设备上的图在 close() 中释放：不调用它，NPU 内存会一直被占用。",
        ),
        remedy=(
            "Call close() on it when the work is done, or open it with `with`.",
            "用完后调用 close()，或用 `with` 打开它。",
        ),
    ),
    "run-config": Limit(
        "tf1",
        reason=(
            "NPURunConfig does not know every argument of RunConfig, and takes them by keyword.",
            "NPURunConfig 不支持 RunConfig 的全部参数，且参数须以关键字给出。",
        ),
        action=("{config} has no argument {name}.", "{config} 没有参数 {name}。"),
        behaviour=(
            "The config raises TypeError when it is made, or gets a wrong setting.",
            "创建 config 时抛出 TypeError，或得到错误的设置。",
        ),
        remedy=("Remove {name}.", "删除 {name}。"),
        cases={
            "positional": Case(
                action=(
                    "The first argument of {config} is {value!r} by position, which is iterations_per_loop.",
                    "{config} 的第一个位置参数为 {value!r}，而该位置是 iterations_per_loop。",
                ),
                remedy=("Give every argument by keyword: model_dir=….", "所有参数都以关键字给出：model_dir=…。"),
            )
        },
    ),
    "config-class": Limit(
        "tf1",
        reason=(
            "NPUEstimator takes an NPURunConfig, not an Estimator's RunConfig.",
            "NPUEstimator 需要 NPURunConfig，而不是 RunConfig。",
        ),
        action=("NPUEstimator is given a {config}.", "NPUEstimator 得到的是 {config}。"),
        behaviour=("NPUEstimator raises ValueError when it is made.", "创建 NPUEstimator 时抛出 ValueError。"),
        remedy=("Give it config=NPURunConfig(…).", "传入 config=NPURunConfig(…)。"),
        cases={"missing": Case(action=("NPUEstimator is given no config.", "NPUEstimator 没有得到 config。"))},
    ),
    "job-id": Limit(
        "tf1",
        reason=(
            "The NPU's job needs JOB_ID in the environment, or a job file.",
            "NPU 作业需要环境变量 JOB_ID，或作业文件。",
        ),
        action=(
            "NPUEstimator is made, and the environment has no JOB_ID.",
            "创建了 NPUEstimator，而环境变量中没有 JOB_ID。",
        ),
        behaviour=(
            "NPUEstimator cannot load the job's information, and raises ValueError.",
            "NPUEstimator 无法读取作业信息，抛出 ValueError。",
        ),
        remedy=(
            "Set JOB_ID in the start script, or give job_start_file.",
            "在启动脚本中设置 JOB_ID，或传入 job_start_file。",
        ),
    ),
    "gpu-device": Limit(
        "tf1",
        reason=(
            "The machine has no GPU: a device string that names one, or GPU options, mean nothing there.",
            "目标机器没有 GPU：GPU 设备字符串或 GPU 选项在那里没有意义。",
        ),
        action=("The device {requested!r} is requested.", "请求了设备 {requested!r}。"),
        behaviour=(
            "There is no GPU: with soft placement this part runs on the host, without it the graph is refused.",
            "没有 GPU：使用 soft placement 时这部分在主机上运行，否则图被拒绝。",
        ),
        remedy=(
            "Remove the device block; the whole graph runs on the NPU.",
            "去掉 device 代码块；整张图在 NPU 上运行。",
        ),
        cases={"mlu": Case(remedy=("Write mlu for gpu.", "把 gpu 改为 mlu。"))},
    ),
    "step-multiples": Limit(
        "tf1",
        reason=(
            "With iterations_per_loop N the host sees every Nth step: steps, checkpoints and hooks are multiples of N.",
            "iterations_per_loop 为 N 时，主机每 N 步才看到一次：步数、检查点和 hook 间隔必须是 N 的倍数。",
        ),
        action=(
            "{name} is {steps}, and iterations_per_loop is {iterations}.",
            "{name} 为 {steps}，而 iterations_per_loop 为 {iterations}。",
        ),
        behaviour=(
            "A loop always runs to its end: more steps are taken than requested, and checkpoints come late.",
            "循环总是执行到底：实际步数多于要求，检查点保存推迟。",
        ),
        remedy=("Choose a multiple of {iterations} for {name}.", "{name} 取 {iterations} 的倍数。"),
    ),
    "eager": Limit(
        "tf1",
        reason=(
            "The adapter for TensorFlow 1 compiles graphs; it does nothing in eager mode.",
            "TensorFlow 1 适配器编译的是图；在 eager 模式下不起作用。",
        ),
        action=("{function} is called.", "调用了 {function}。"),
        behaviour=(
            "Nothing is compiled for the NPU: everything runs on the host, or operators of npu_bridge fail.",
            "不会为 NPU 编译任何内容：全部在主机上运行，或 npu_bridge 的算子失败。",
        ),
        remedy=(
            "Build a graph and run it in a session, or in an Estimator.",
            "构建图，并在 session 或 Estimator 中运行。",
        ),
        cases={
            "operator": Case(
                action=("{function} is called in eager mode.", "在 eager 模式下调用了 {function}。"),
                behaviour=("The operator is refused.", "该算子被拒绝。"),
            )
        },
    ),
    "reduction-name": Limit(
        "tf1",
        reason=(
            f"{NPU.backend} reduces by max, min, prod or sum; a mean is a sum that is divided.",
            f"{NPU.backend} 的归约只有 max、min、prod、sum；求平均要用 sum 再除。",
        ),
        action=(
            "{function} is called with the reduction {reduction!r}.",
            "调用 {function} 时的归约方式为 {reduction!r}。",
        ),
        behaviour=("The operator is refused when the graph is built.", "构建图时该算子被拒绝。"),
        remedy=("Write max, min, prod or sum.", "写成 max、min、prod 或 sum。"),
        cases={"mean": Case(remedy=('Write "sum" and divide by the number of ranks.', '写成 "sum"，再除以 rank 数。'))},
    ),
    "collective-dtype": Limit(
        "tf1",
        reason=(
            f"{NPU.backend} sends real numbers, not bool, string or complex tensors; it reduces no uint8, uint16, "
            "uint32.",
            f"{NPU.backend} 只传输实数类型，不支持 bool、字符串和复数；归约不支持 uint8、uint16 和 uint32。",
        ),
        action=("{function} is called with a tensor of {dtype}.", "调用 {function} 时的张量类型为 {dtype}。"),
        behaviour=("The operator is refused.", "该算子被拒绝。"),
        remedy=("Cast it to one of {allowed}.", "转换为以下类型之一：{allowed}。"),
    ),
}
