"""torch.compile and torch.nn.DataParallel in a rehearsal.

torch.compile traces and generates nothing, because a backend would run the same arithmetic. It wraps a module all the
same, because that changes the names of its parameters. DataParallel, whatever its device_ids, moves the inputs to one
card and calls the module.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards


def wrap_compile(check: Callable[[Any], None]) -> None:
    """Replace torch.compile; `check` is called with the backend that a script asks for."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
        if model is None:
            return lambda model: compile(model, backend=backend, **options)
        check(backend)
        return _wrap_model(model)

    def compile_in_place(self: torch.nn.Module, *, backend: Any = "inductor", **options: Any) -> None:
        check(backend)

    # The rehearsal registers such hooks itself. Nothing is traced, so the warning does not apply.
    warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks")
    torch.compile = compile
    torch.nn.Module.compile = compile_in_place  # type: ignore[method-assign]


def _wrap_model(model: Any) -> Any:
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(model, lambda function: function)  # type: ignore[arg-type]


def init_data_parallel(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
    """Constructor of DataParallel: moves the module to the current card, whatever device_ids are."""
    torch.nn.Module.__init__(self)
    self.dim, self.device_ids, self.output_device = dim, [cards.current], cards.current
    self.module = getattr(module, cards.name)(cards.current)


def forward_data_parallel(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    return self.module(*_move_to_card(inputs), **_move_to_card(kwargs))


def _move_to_card(value: Any) -> Any:
    """Return a value with its tensors on the current card, also those in containers."""
    if isinstance(value, torch.Tensor):
        return getattr(value, cards.name)(cards.current)
    if isinstance(value, dict):
        return {name: _move_to_card(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_move_to_card(part) for part in value)
    return value
