"""Cambricon cards, through the vendor's plug-in torch_mlu and CNToolkit under it."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.cards.mlu import CARD
from viaduct.devices import hardware, plugin
from viaduct.devices.base import GIB, check_index, select_known

NAME = CARD.name

_VENDOR = plugin.Vendor(
    CARD,
    repair="Put $NEUWARE_HOME/lib64 on LD_LIBRARY_PATH",
    device_files="/dev/cambricon*",
    unhide="Unset it, or list card numbers: 0,1.",
)


def available() -> bool:
    return missing() is None


def missing() -> str | None:
    return plugin.missing(_VENDOR)


def count() -> int:
    return int(_mlu().device_count()) if available() else 0


def select(index: int = 0) -> torch.device:
    check_index(NAME, index, count(), missing())
    _mlu().set_device(index)
    return torch.device(NAME, index)


def synchronize() -> None:
    _mlu().synchronize()


def memory_used() -> int:
    return int(_mlu().max_memory_allocated())


def reset_memory() -> None:
    _mlu().init()
    _mlu().reset_peak_memory_stats()


def memory_free() -> int:
    return int(_mlu().mem_get_info()[0])


def autocast_dtypes() -> tuple[str, ...]:
    # The MLU370 has no bf16, the MLU590 has; releases that cannot say predate it.
    can_bf16 = getattr(_mlu(), "is_bf16_supported", lambda: False)
    return ("bf16", "fp16") if can_bf16() else ("fp16",)


def software_dtypes() -> tuple[str, ...]:
    return ()


def allow_tf32(allowed: bool) -> None:
    return None  # torch.backends.cnnl.allow_tf32 stays as the vendor has it


def collective_backend() -> str:
    return CARD.backend


def graph_capture() -> object | None:
    graph: object | None = getattr(_mlu(), "MLUGraph", None) if available() else None
    return graph


def versions() -> dict[str, str]:
    return select_known(
        {
            "torch": torch.__version__,
            CARD.module: plugin.version(CARD.module),
            "cntoolkit": hardware.cntoolkit(),
            "driver": hardware.cambricon_driver(),
        }
    )


def description() -> str:
    name = _mlu().get_device_name()
    return f"{name}, {_mlu().mem_get_info()[1] / GIB:.0f} GiB"


def random_state() -> torch.Tensor | None:
    state: torch.Tensor = _mlu().get_rng_state()
    return state


def set_random_state(state: torch.Tensor | None) -> None:
    if state is not None:
        _mlu().set_rng_state(state)


def _mlu() -> Any:
    return plugin.api(_VENDOR)
