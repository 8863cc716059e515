"""Registrations with PyTorch's dispatcher, which last as long as their library object is held: here, for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_libraries: list[Any] = []
_Library: Any = torch.library.Library


def library(namespace: str) -> Any:
    """A library that adds kernels to `namespace`; `_` is every operator's fallback."""
    made = _Library(namespace, "IMPL")
    _libraries.append(made)
    return made


def overload(name: str) -> Any:
    """The operator of aten that is written `softmax.int`, or `mm`."""
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant or "default")


def replace_function(name: str, wrap: Callable[[Any], Any]) -> None:
    """Put another function under a name of torch; torch.jit goes on knowing it as the operator that it was."""
    old = getattr(torch, name)
    new = wrap(old)
    builtins: Any = torch.jit._builtins
    operator = builtins._find_builtin(old)
    if operator:
        builtins._register_builtin(new, operator)
    setattr(torch, name, new)
