"""`torch.npu.amp`, `torch.mlu.amp`: autocast and GradScaler of the card, counterparts of torch.cuda.amp's."""

from __future__ import annotations

import functools
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards


class autocast(torch.amp.autocast_mode.autocast):
    """torch.amp.autocast of the card."""

    def __init__(self, enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__(cards.device_name, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler of the card, with torch_npu's argument `dynamic`; False keeps the scale constant."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__(cards.device_name, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def update(self, new_scale: Any = None) -> None:
        if not self._dynamic and new_scale is None:
            new_scale = self._scale  # keeps the present scale
        super().update(new_scale)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)
    return torch.amp.custom_fwd(fwd, device_type=cards.device_name, cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    return torch.amp.custom_bwd(bwd, device_type=cards.device_name)


def amp_definitely_not_available() -> bool:
    return False
