"""Ascend cards, through Huawei's plug-in torch_npu and CANN under it."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.cards.npu import CARD
from viaduct.devices import hardware, plugin
from viaduct.devices.base import GIB, check_index, select_known

NAME = CARD.name

_VENDOR = plugin.Vendor(
    CARD,
    repair="Source CANN's set_env.sh",
    device_files="/dev/davinci*",
    unhide="Unset it, or list card numbers in ascending order: 0,1.",
)


def available() -> bool:
    return missing() is None


def missing() -> str | None:
    return plugin.missing(_VENDOR)


def count() -> int:
    return int(_npu().device_count()) if available() else 0


def select(index: int = 0) -> torch.device:
    check_index(NAME, index, count(), missing())
    _npu().set_device(index)
    return torch.device(NAME, index)


def synchronize() -> None:
    _npu().synchronize()


def memory_used() -> int:
    return int(_npu().max_memory_allocated())


def reset_memory() -> None:
    _npu().init()
    _npu().reset_peak_memory_stats()


def memory_free() -> int:
    return int(_npu().mem_get_info()[0])


def autocast_dtypes() -> tuple[str, ...]:
    # The 910 of 2019 has no bf16, the 910B of 2023 has; releases that cannot say predate it.
    can_bf16 = getattr(_npu(), "is_bf16_supported", lambda: False)
    return ("bf16", "fp16") if can_bf16() else ("fp16",)


def software_dtypes() -> tuple[str, ...]:
    return ()


def allow_tf32(allowed: bool) -> None:
    return None  # torch.npu.conv.allow_hf32 stays as the vendor has it


def collective_backend() -> str:
    return CARD.backend


def graph_capture() -> object | None:
    graph: object | None = getattr(_npu(), "NPUGraph", None) if available() else None
    return graph


def versions() -> dict[str, str]:
    return select_known(
        {
            "torch": torch.__version__,
            CARD.module: plugin.version(CARD.module),
            "cann": hardware.cann(),
            "driver": hardware.ascend_driver(),
        }
    )


def description() -> str:
    name = _npu().get_device_name()
    return f"{name}, {_npu().mem_get_info()[1] / GIB:.0f} GiB"


def random_state() -> torch.Tensor | None:
    state: torch.Tensor = _npu().get_rng_state()
    return state


def set_random_state(state: torch.Tensor | None) -> None:
    if state is not None:
        _npu().set_rng_state(state)


def _npu() -> Any:
    return plugin.api(_VENDOR)
