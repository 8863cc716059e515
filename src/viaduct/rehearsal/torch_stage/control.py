"""Functions that torch.npu and torch.mlu share with torch.cuda: number and choice of cards, autocast's state."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from viaduct.cards import MLU, NPU
from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage.cards import cards, get_card_index, resolve_card_index

# The card's own variables that list the visible cards, such as ASCEND_RT_VISIBLE_DEVICES; the first that is set counts.
_VISIBLE_VARIABLES = {
    card.name: [name for name in card.visible_variables if name != "CUDA_VISIBLE_DEVICES"] for card in (NPU, MLU)
}
_initialized = False


def _count_visible_cards() -> int:
    """Return the number of visible cards of this process: all of the rehearsal's, or those that a variable lists."""
    for variable in _VISIBLE_VARIABLES.get(cards.device_name, ()):
        text = os.environ.get(variable)
        if text is not None:
            return _count_listed(variable, text.strip())
    return len(cards.memory_meters)


def _count_listed(variable: str, text: str) -> int:
    """Return the number of cards in a variable's list; report a list that is invalid on an NPU."""
    if not text:
        return 0
    numbers = sorted({int(part) for part in re.findall(r"\d+", text)})
    ascending = ",".join(map(str, numbers)) or "0"
    if cards.device_name == "npu" and text != ascending:
        limits.report_violation("visible-devices", variable=variable, value=text, ascending=ascending)
    return min(len(numbers), len(cards.memory_meters))


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return _initialized


def _lazy_init() -> None:
    """Fix the number of cards at the first use of the device, as torch.cuda does."""
    global _initialized
    if not _initialized:
        _initialized = True
        cards.count = _count_visible_cards()


init = _lazy_init


def _is_in_bad_fork() -> bool:
    return False  # a forked process can use the device, since its memory is the host's


def device_count() -> int:
    return cards.count if _initialized else _count_visible_cards()


def current_device() -> int:
    _lazy_init()
    return cards.current_index


def set_device(device: Any) -> None:
    _lazy_init()
    cards.select(resolve_card_index(device))


def synchronize(device: Any = None) -> None:
    resolve_card_index(device)


def can_device_access_peer(device_id: Any, peer_device_id: Any) -> bool:
    device, peer = resolve_card_index(device_id), resolve_card_index(peer_device_id)
    if max(device, peer) >= device_count():
        raise AssertionError(f"Invalid peer device id: {max(device, peer)}")
    return device != peer


def utilization(device: Any = None) -> int:
    resolve_card_index(device)
    return 0


def ipc_collect() -> None:
    pass


def is_bf16_supported(including_emulation: bool = False) -> bool:
    return True


def is_current_stream_capturing() -> bool:
    return False


def current_blas_handle() -> int:
    return 0


class device:
    """Context in which a card is the current one."""

    def __init__(self, device: Any) -> None:
        self.idx = resolve_card_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = cards.current_index
        cards.select(self.idx)

    def __exit__(self, *error: Any) -> None:
        cards.select(self.prev_idx)


class device_of(device):
    """Context in which a tensor's card is the current one; a host's tensor changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(get_card_index(obj) if get_card_index(obj) >= 0 else None)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_autocast_enabled() -> bool:
    return torch.is_autocast_enabled(cards.device_name)


def set_autocast_enabled(enable: bool) -> None:
    torch.set_autocast_enabled(cards.device_name, enable)


def get_autocast_dtype() -> torch.dtype:
    return torch.get_autocast_dtype(cards.device_name)


def set_autocast_dtype(dtype: torch.dtype) -> None:
    torch.set_autocast_dtype(cards.device_name, dtype)
