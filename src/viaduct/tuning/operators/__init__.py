"""Kinds of operators that can be tuned, one file a kind; each file has the same functions.

    KIND                          the first word of its signatures
    make_space(signature, …)      the variants that there are for a signature
    make_work(signature, …)       one variant, ready to be run and to have its values compared

conv2d.py and linear.py also describe a module of a network (`describe`) and replace its forward pass (`make_forward`);
optimizer.py does the same for an optimizer, kernel.py for launches of viaduct's own kernels.
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
    """Compute and return everything that training would use, by name; each variant begins with the same tensors."""


class OperatorKind(Protocol):
    """Interface of a file in this folder; the caller that starts the worker may add others."""

    KIND: str

    def make_space(self, signature: Signature, device: str, with_compiler: bool) -> Space: ...

    def make_work(self, signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
        """Return the work; with `exact` its values are a reference of higher precision, usually in float64."""


def list_kinds() -> Mapping[str, ModuleType]:
    """Return the kinds that this package has, by name."""
    from viaduct.tuning.operators import conv2d, kernel, linear, optimizer

    return {module.KIND: module for module in (conv2d, kernel, linear, optimizer)}
