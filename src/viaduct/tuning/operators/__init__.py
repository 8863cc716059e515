"""Kinds of operators that can be tuned, one file a kind; a file offers the same functions in each.

    KIND                          the first word of its signatures
    make_space(signature, …)      the variants that there are for a signature
    make_work(signature, point)   one variant as something that can be run and whose values can be compared

conv2d.py and linear.py also describe a module of a network (`describe`) and replace its forward pass (`make_forward`);
optimizer.py does so for an optimizer, kernel.py for launches of kernels of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

from torch import Tensor

from viaduct.tuning.bank import Choice
from viaduct.tuning.signature import Signature
from viaduct.tuning.space import Space


@dataclass(frozen=True)
class Work:
    """One variant of an operator, ready to be run."""

    run: Callable[[], object]
    """Do the work once, as a training step does: forward and backward, or an update."""
    read_values: Callable[[], Sequence[tuple[str, Tensor]]]
    """Compute from the same start and return everything that training would use, by name."""


class OperatorKind(Protocol):
    """Interface of a file in this folder; the caller that starts the worker may add others."""

    KIND: str

    def make_space(self, signature: Signature, device: str, with_compiler: bool) -> Space: ...

    def make_work(self, signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
        """Return the work; `exact` computes the default in float64, as the reference of values."""


def list_kinds() -> Mapping[str, ModuleType]:
    """Return the kinds that this package has, by name."""
    from viaduct.tuning.operators import conv2d, kernel, linear, optimizer

    return {module.KIND: module for module in (conv2d, kernel, linear, optimizer)}
