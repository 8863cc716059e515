"""torch.compile and torch.nn.DataParallel in a rehearsal.

torch.compile traces and generates nothing. It still wraps a module in OptimizedModule, because this prefixes the names
of the parameters with `_orig_mod.`. DataParallel moves the inputs to one card and calls the module there, whatever its
device_ids are.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from viaduct.rehearsal.torch_stage.cards import cards


def wrap_compile(check: Callable[[Any], None]) -> None:
    """Replace torch.compile; `check` is called with the requested backend."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
        if model is None:
            return lambda model: compile(model, backend=backend, **options)
        check(backend)
        return _wrap_model(model)

    def compile_in_place(self: torch.nn.Module, *, backend: Any = "inductor", **options: Any) -> None:
        check(backend)

    # The rehearsal registers such hooks, but nothing is traced.
    warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks")
    torch.compile = compile
    torch.nn.Module.compile = compile_in_place  # type: ignore[method-assign]


def _wrap_model(model: Any) -> Any:
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(model, lambda function: function)  # type: ignore[arg-type]


def replace_data_parallel() -> None:
    """Let DataParallel use the current card only."""

    def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        torch.nn.Module.__init__(self)
        self.dim, self.device_ids, self.output_device = dim, [cards.current_index], cards.current_index
        self.module = getattr(module, cards.device_name)(cards.current_index)

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*_move_to_card(inputs), **_move_to_card(kwargs))

    torch.nn.DataParallel.__init__, torch.nn.DataParallel.forward = init, forward  # type: ignore[method-assign]


def _move_to_card(value: Any) -> Any:
    """Return a value with its tensors, also in containers, on the current card."""
    return tree_map_only(torch.Tensor, lambda tensor: getattr(tensor, cards.device_name)(cards.current_index), value)
