"""torch's SGD and AdamW without importing torch's compiler.

The first optimizer of torch in a process imports torch._dynamo only to exclude a few methods from compilation. That
takes one to three seconds. These classes compute the same without the import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from viaduct.training.optimizer_support import AdamWSupport, SgdSupport

UNCOMPILED_METHODS = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def unwrap_step(step: Callable[..., Any]) -> Any:
    """Return torch's step without the wrapper that makes the compiler begin a new graph there."""
    return torch.no_grad()(inspect.unwrap(step))


class SGD(torch.optim.SGD):
    """torch's SGD with an unwrapped step."""

    support = SgdSupport
    step = unwrap_step(torch.optim.SGD.step)


class AdamW(torch.optim.AdamW):
    """torch's AdamW with an unwrapped step."""

    support = AdamWSupport
    step = unwrap_step(torch.optim.AdamW.step)


# Mark the methods of every optimizer as excluded from compilation, which torch would import its compiler for.
for _name in UNCOMPILED_METHODS:
    _method = inspect.unwrap(getattr(torch.optim.Optimizer, _name))
    vars(_method).setdefault("__dynamo_disable", _method)
