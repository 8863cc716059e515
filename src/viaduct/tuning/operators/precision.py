"""Autocast and oneDNN switches around a variant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor


def find_compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type that an operator on `x` computes in now: autocast's if that is enabled, else that of `x`."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def cast_for_compute(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the operands cast as autocast would for a convolution or a matrix product."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def autocast_to(compute: torch.dtype, x: Tensor, weight: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which an operator on `x` and `weight` computes in this type."""
    if compute == x.dtype == weight.dtype or compute == torch.float64:
        return nullcontext()
    return torch.autocast(x.device.type, dtype=compute, cache_enabled=False)


@contextmanager
def set_onednn(on: bool) -> Iterator[None]:
    """Switch oneDNN on or off within the block; torch.backends.mkldnn.flags would reset its other settings as well."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(on)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)
