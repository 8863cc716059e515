"""Registrations with PyTorch's dispatcher for the whole process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_libraries: list[Any] = []  # kept, because a registration ends with its library object
_Library: Any = torch.library.Library


def make_library(namespace: str) -> Any:
    """Return a library that adds kernels to `namespace`; the namespace `_` is for fallbacks of all operators."""
    _libraries.append(_Library(namespace, "IMPL"))
    return _libraries[-1]


@functools.cache
def find_overload(name: str) -> Any:
    """Return the operator of aten for a name with or without an overload: `softmax.int`, `mm`."""
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant or "default")


def replace_function(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch by a wrapper; torch.jit compiles calls of the wrapper as the same operator."""
    plain = getattr(torch, name)
    wrapper = wrap(plain)
    builtins: Any = torch.jit._builtins
    operator = builtins._find_builtin(plain)
    if operator:
        builtins._register_builtin(wrapper, operator)
    setattr(torch, name, wrapper)
