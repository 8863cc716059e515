"""Tunable kernels: the search space of each, and cases with random tensors to check and time its points.

    with record_launches() as launches: ...          run an eager step (kernels/choices.py)
    for key in launches:                             a key is (kernel, signature)
        space = make_space(key, device)              rules exclude points that exceed the card's resources
        case = make_case(key, device)
        case.measure_error(point)                    against plain PyTorch; compare it with case.allowed_error
        case.run(point)                              this is what to time
    set_choices({key: best})                         launches use this point from now on

Each file of this folder registers a family of kernels. Importing them needs Triton.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module

import torch

from viaduct.errors import UnknownName
from viaduct.kernels.choices import Key
from viaduct.kernels.tunable.base import Case, Limits, Tunable, read_limits
from viaduct.search_space import Space

__all__ = ["Case", "Limits", "Tunable", "list_spaces", "list_tunables", "make_case", "make_space", "read_limits"]


@cache
def list_tunables() -> dict[str, Tunable]:
    """Return every tunable kernel by name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {tunable.kernel: tunable for module in modules for tunable in getattr(module, "TUNABLES", ())}


def find_tunable(kernel: str) -> Tunable:
    """Return the tunable kernel with this name or raise UnknownName."""
    tunables = list_tunables()
    if kernel not in tunables:
        raise UnknownName("tunable kernel", kernel, tunables)
    return tunables[kernel]


def make_space(key: Key, device: torch.device) -> Space:
    """Return the search space of a kernel for a signature on this device."""
    kernel, signature = key
    return find_tunable(kernel).make_space(signature, read_limits(device))


def make_case(key: Key, device: torch.device) -> Case:
    """Return a case with random tensors of the sizes and dtype in a signature."""
    kernel, signature = key
    return find_tunable(kernel).make_case(signature, device)


def list_spaces(keys: Iterable[Key], device: torch.device) -> dict[Key, Space]:
    """Return the search spaces of tunable kernels, except those with a single valid point."""
    spaces = {key: make_space(key, device) for key in keys if key[0] in list_tunables()}
    return {key: space for key, space in spaces.items() if space.size > 1}
