"""torch's optimizers without torch's compiler.

The first optimizer of a process imports torch._dynamo: one second, or three where Python may keep no bytecode, so that
a compiler that may never come keeps out of a few methods. These compute the same and leave it where it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

KEPT_OUT_OF = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def unwrapped(step: Callable[..., Any]) -> Any:
    """A step as torch wrote it: without the wrapper that asks the compiler to begin a new graph there."""
    return torch.no_grad()(inspect.unwrap(step))


class SGD(torch.optim.SGD):
    step = unwrapped(torch.optim.SGD.step)


class AdamW(torch.optim.AdamW):
    step = unwrapped(torch.optim.AdamW.step)


def is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is torch's own, and nobody's who has built on it."""
    return type(optimizer) in (SGD, torch.optim.SGD)


def keep_compiler_away() -> None:
    """From the methods of every optimizer: torch finds there what it would have asked its compiler for."""
    for name in KEPT_OUT_OF:
        method = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        vars(method).setdefault("__dynamo_disable", method)


keep_compiler_away()
