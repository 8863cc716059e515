"""Advice about features of CUDA that another card lacks or has under another name, in English and Chinese.

`viaduct migrate` prints these texts. The keys of each table are the names of the cards; `any`, which some tables have,
is the advice for a script that shall run on every card.
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.cards import CARDS, CUDA, MLU, NPU
from viaduct.cards.limits import CAPABILITY_IS_NONE, Bilingual, Risk


@dataclass(frozen=True)
class Remark:
    """Sentence about one card, and the risk if the script is not changed."""

    english: str
    chinese: str
    risk: Risk = "low"


# What get_device_capability() returns on each card.
DEVICE_CAPABILITY = {
    "npu": Remark(*CAPABILITY_IS_NONE, "high"),
    "mlu": Remark(
        "torch.mlu returns the MLU's generation, not NVIDIA's",
        "torch.mlu 返回的是 MLU 的代次,与 NVIDIA 的含义不同",
        "medium",
    ),
}
# Advice about torch.jit.script.
TORCHSCRIPT = {
    "npu": Remark("scripting of device code is limited on the NPU", "NPU 对设备代码的脚本化支持有限"),
    "mlu": Remark("the MLU's run-time patch switches scripting off", "MLU 的运行时补丁会关闭脚本化"),
}
# Advice about torch.compile.
TORCH_COMPILE = {
    "npu": Remark(
        'the NPU needs a backend of its own: "npugraphs" from torch 2.6 on, or torchair.get_npu_backend()',
        "NPU 需要专用后端:torch 2.6 起的 npugraphs,或 torchair.get_npu_backend()",
        "medium",
    ),
    "mlu": Remark(
        f"the MLU needs a build of {MLU.plugin} with a compiler", f"MLU 需要带编译器的 {MLU.plugin} 版本", "medium"
    ),
}
# What torch.set_default_tensor_type does on each card.
DEFAULT_TENSOR_TYPE: dict[str, Bilingual] = {
    "npu": ("set_default_tensor_type takes none of the NPU's types", "set_default_tensor_type 不接受 NPU 的张量类型"),
    "mlu": ("whether the MLU supports default tensor types is not known", "MLU 是否支持默认张量类型未知"),
}
# Replacement for a kernel in CUDA C++ that belongs to the project.
CUDA_KERNELS: dict[str, Bilingual] = {
    "npu": (
        f"write it in Ascend C and build it with {NPU.plugin}.utils.cpp_extension.NpuExtension, "
        "or use PyTorch's operators",
        f"请用 Ascend C 重写并以 {NPU.plugin}.utils.cpp_extension.NpuExtension 编译,或改用 PyTorch 算子",
    ),
    "mlu": (
        f"write it in BANG C and build it with {MLU.plugin}.utils.cpp_extension.MLUExtension, "
        "or use PyTorch's operators",
        f"请用 BANG C 重写并以 {MLU.plugin}.utils.cpp_extension.MLUExtension 编译,或改用 PyTorch 算子",
    ),
    "any": (
        "keep an implementation with PyTorch's operators for the other devices, and call the kernel on CUDA only",
        "请为其他设备保留基于 PyTorch 算子的实现,仅在 CUDA 上调用该核函数",
    ),
}
# Advice about an import of apex.
APEX: dict[str, Bilingual] = {
    "npu": (
        f"apex stays: install the one that {NPU.vendor} makes for {NPU.plugin}, not NVIDIA's",
        f"保持不变:请安装昇腾为 {NPU.plugin} 提供的 apex,而非 NVIDIA 版本",
    ),
    "mlu": (
        "there is no apex on the MLU: mixed precision is torch.mlu.amp",
        "MLU 上没有 apex:混合精度请使用 torch.mlu.amp",
    ),
    "any": (
        "apex is for NVIDIA cards: mixed precision for all is torch.amp",
        "apex 面向 NVIDIA:通用混合精度请使用 torch.amp",
    ),
}
# Replacement for a CUDA build of PyTorch in a list of requirements.
TORCH_BUILD: dict[str, Bilingual] = {
    "npu": (f"PyTorch's CPU build and {NPU.plugin} of the same version", f"PyTorch 的 CPU 版本与同版本的 {NPU.plugin}"),
    "mlu": (f"the PyTorch that Cambricon's {MLU.plugin} is made for", f"与寒武纪 {MLU.plugin} 配套的 PyTorch"),
    "any": ("one list for each device, without a CUDA build here", "按设备分别列出,此处不写 CUDA 版本"),
}
# Replacement for a CUDA image in a Dockerfile.
CONTAINER_IMAGE: dict[str, Bilingual] = {
    "npu": ("an image with the Ascend driver's tools and CANN", "带有昇腾驱动工具与 CANN 的镜像"),
    "mlu": ("an image with Cambricon's Neuware", "带有寒武纪 Neuware 的镜像"),
    "any": ("one image for each device", "按设备分别准备镜像"),
}
MONITOR = CUDA.monitor_command


def describe_monitor(to: str) -> Bilingual:
    """Return the advice about a call of nvidia-smi; `to`: npu, mlu or any."""
    if to in CARDS:
        tool = CARDS[to].monitor_command
        return (
            f"{MONITOR} is for NVIDIA's cards only; use `{tool}` here, which has another output",
            f"{MONITOR} 只认识 NVIDIA 设备;此处请用 `{tool}`,其输出格式不同",
        )
    tools = " and ".join(f"`{card.monitor_command}`" for card in CARDS.values())
    return (
        f"{MONITOR} is for NVIDIA's cards only; other cards have {tools}, with another output",
        f"{MONITOR} 只认识 NVIDIA 设备;其他设备请用 {tools},其输出格式不同",
    )


def describe_launcher(module: str) -> Bilingual:
    """Return the advice about a launcher such as torchrun; `module`: the card's module, such as torch.npu."""
    return (
        f"the launcher stays: make sure that every process calls {module}.set_device(LOCAL_RANK) before its first "
        "tensor",
        f"启动命令保持不变:请确保每个进程在创建张量之前调用 {module}.set_device(LOCAL_RANK)",
    )
