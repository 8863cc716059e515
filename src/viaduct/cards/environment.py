"""Environment variables of CUDA, and their counterparts on the accelerators."""

from __future__ import annotations

import re
from itertools import pairwise

from viaduct.cards import CUDA, Card
from viaduct.cards.limits import ASCENDING_DEVICES, Bilingual

CUDA_VISIBLE_DEVICES = CUDA.visible_variable
NCCL_VARIABLE = re.compile(r"(?:TORCH_)?NCCL_[A-Z0-9_]+")
DEVICE_NUMBERS = re.compile(r"\d+(?:\s*,\s*\d+)*")
HIDING_VALUES = ("", "-1")  # values of CUDA_VISIBLE_DEVICES that hide all devices
# Advice where a script composes the list of visible devices at run time.
CHECK_DEVICE_ORDER: Bilingual = (
    f"check the order of the devices: {ASCENDING_DEVICES[0]}",
    f"请检查设备的顺序：{ASCENDING_DEVICES[1]}",
)
# Message where the variables of all cards are set beside CUDA_VISIBLE_DEVICES.
EVERY_CARD_IS_SET: Bilingual = (
    f"the visible devices are set for every kind of card; {ASCENDING_DEVICES[0]}",
    f"同时设置各类加速卡的可见设备变量；{ASCENDING_DEVICES[1]}",
)
# Variables of each card's collective library, in English and Chinese, from the vendors' documents and from scripts.
COLLECTIVE_VARIABLES = {
    "npu": (
        "HCCL has its own: HCCL_CONNECT_TIMEOUT for waiting, HCCL_IF_IP or HCCL_SOCKET_IFNAME for the network, "
        "HCCL_WHITELIST_DISABLE=1 without a white list",
        "HCCL 使用自己的变量:HCCL_CONNECT_TIMEOUT(等待时间)、HCCL_IF_IP 或 HCCL_SOCKET_IFNAME(网卡)、"
        "HCCL_WHITELIST_DISABLE=1(不使用白名单)",
    ),
    "mlu": (
        "CNCL has its own, such as CNCL_BLOCKING_WAIT and CNCL_SEND_RECV_ENABLE",
        "CNCL 使用自己的变量,如 CNCL_BLOCKING_WAIT、CNCL_SEND_RECV_ENABLE",
    ),
}
# Variables of CUDA -> card -> the variable with the same purpose there; a card without one is absent.
COUNTERPARTS = {
    "CUDA_LAUNCH_BLOCKING": {"npu": "ASCEND_LAUNCH_BLOCKING"},
    "PYTORCH_CUDA_ALLOC_CONF": {"npu": "PYTORCH_NPU_ALLOC_CONF", "mlu": "PYTORCH_MLU_ALLOC_CONF"},
}
# Variables of CUDA without a counterpart on any card.
NO_COUNTERPART = ("CUDA_DEVICE_ORDER", "CUBLAS_WORKSPACE_CONFIG", "CUDNN_DETERMINISTIC", "CUDA_DEVICE_MAX_CONNECTIONS")
# Variables of CUDA other than CUDA_VISIBLE_DEVICES and those of NCCL.
OTHER_CUDA_VARIABLES = (*COUNTERPARTS, *NO_COUNTERPART)


def is_valid_device_list(value: str, card: Card) -> bool:
    """Return True if a value of CUDA_VISIBLE_DEVICES is also valid for the card's variable.

    An empty list, -1 and numbers are valid; for the NPU the numbers must be ascending. UUIDs of GPUs are not valid.
    """
    text = value.strip()
    if text in HIDING_VALUES:
        return True
    if DEVICE_NUMBERS.fullmatch(text) is None:
        return False
    numbers = [int(number) for number in text.split(",")]
    return not card.needs_ascending_devices or all(number < next_number for number, next_number in pairwise(numbers))


def explain_refused_devices(value: str, card: Card) -> Bilingual:
    """Return the reason why a list of visible devices cannot be kept."""
    names_refused = (
        f"{card.visible_variable} takes numbers, not names of GPUs",
        f"{card.visible_variable} 只接受编号，不接受 GPU 名称",
    )
    english, chinese = ASCENDING_DEVICES if card.needs_ascending_devices else names_refused
    return f"the devices {value} cannot be carried over: {english}", f"设备列表 {value} 无法沿用：{chinese}"


def describe_own_variable(card: Card) -> Bilingual:
    """Return the message about CUDA_VISIBLE_DEVICES where the migration does not replace it by the card's variable."""
    return (
        f"{CUDA_VISIBLE_DEVICES} is for NVIDIA GPUs: set {card.visible_variable} for the {card.title}",
        f"{CUDA_VISIBLE_DEVICES} 面向 NVIDIA GPU：请为 {card.title} 设置 {card.visible_variable}",
    )


def describe_nccl_variable(name: str, card: Card) -> Bilingual:
    """Return the message about a variable of NCCL in a script for one card, in English and Chinese."""
    english, chinese = COLLECTIVE_VARIABLES[card.name]
    return (
        f"{name} affects NCCL only and has no effect here. {english}",
        f"{name} 仅对 NCCL 有效,此处不起作用。{chinese}",
    )


def describe_nccl_variable_for_all(name: str) -> Bilingual:
    """Return the message about a variable of NCCL in a script for every card, in English and Chinese."""
    (npu, npu_zh), (mlu, mlu_zh) = COLLECTIVE_VARIABLES["npu"], COLLECTIVE_VARIABLES["mlu"]
    return (
        f"{name} affects NCCL only: it stays for CUDA. On an NPU {npu}; on an MLU {mlu}",
        f"{name} 仅对 NCCL 有效,在 CUDA 上保留。NPU 上 {npu_zh};MLU 上 {mlu_zh}",
    )


def describe_cuda_variable(name: str, card: Card) -> Bilingual:
    """Return the message about one of OTHER_CUDA_VARIABLES in English and Chinese: its counterpart, or no effect."""
    counterpart = COUNTERPARTS.get(name, {}).get(card.name, "")
    if counterpart:
        return f"{name} has no effect on the {card.title}; its counterpart is {counterpart}", (
            f"{name} 在 {card.title} 上不起作用,对应的变量是 {counterpart}"
        )
    return f"{name} has no effect on the {card.title}", f"{name} 在 {card.title} 上不起作用"
