"""torch.compile: what a backend would run is the same arithmetic, so nothing is traced or generated in a rehearsal.

A module is wrapped all the same, for the names of its parameters change with that.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch


def install(check: Callable[[Any], None]) -> None:
    """`check` is called with the backend that a script asks for."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
        if model is None:
            return lambda model: compile(model, backend=backend, **options)
        check(backend)
        return _wrap_model(model)

    def compile_in_place(self: torch.nn.Module, *, backend: Any = "inductor", **options: Any) -> None:
        check(backend)

    # The rehearsal watches modules through such hooks; nothing is traced, so none fires twice in a compiled part.
    warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks")
    torch.compile = compile
    torch.nn.Module.compile = compile_in_place  # type: ignore[method-assign]


def _wrap_model(model: Any) -> Any:
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(model, _as_it_is)  # type: ignore[arg-type]


def _as_it_is(function: Any) -> Any:
    return function
