"""Kinds of operators that can be tuned: conv2d.py, linear.py, optimizer.py, kernel.py, each with the same functions.

    KIND                          first word of its signatures
    describe(…)                   the signature of a module's call, an optimizer, or a launch of a viaduct kernel
    make_space(signature, …)      the variants of such an operator, as a space of configurations
    make_work(signature, …)       one variant, ready to be run and to have its values compared

A variant is applied to a network by `make_forward` (convolutions, linear layers), `set_implementation` (optimizers) or
the table of launch parameters in kernels/choices.py (kernels).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

from torch import Tensor

from viaduct.search_space import Space
from viaduct.tuning.bank import Choice
from viaduct.tuning.signature import Signature


@dataclass(frozen=True)
class Work:
    """One variant of an operator, ready to run."""

    run: Callable[[], object]  # do the work once, as a training step does: forward and backward, or an update
    read_values: Callable[[], Sequence[tuple[str, Tensor]]]
    """Compute and return all results that training would use, by name; all variants start from the same tensors."""


class OperatorKind(Protocol):
    """Interface of these modules; training/ adds another kind, which times complete steps."""

    KIND: str

    def make_space(self, signature: Signature, device: str, allow_compiled: bool) -> Space:
        """Return the variants on a kind of device; compiled ones only if they are allowed and can run here."""

    def make_work(self, signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
        """Return the work; with `exact` its values are a reference of higher precision, usually float64."""


def list_kinds() -> Mapping[str, ModuleType]:
    """Return the modules by KIND."""
    from viaduct.tuning.operators import conv2d, kernel, linear, optimizer

    return {module.KIND: module for module in (conv2d, kernel, linear, optimizer)}
