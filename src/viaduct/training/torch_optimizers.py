"""torch's SGD and AdamW without importing torch's compiler.

The first torch optimizer of a process imports torch._dynamo, which takes one to three seconds, only to exclude a few
methods from compilation. These classes compute the same without the import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from viaduct.training.optimizer_support import AdamWSupport, SgdSupport

UNCOMPILED_METHODS = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def unwrap_step(step: Callable[..., Any]) -> Any:
    """Return a `step` method of torch without the wrapper that excludes it from compilation."""
    return torch.no_grad()(inspect.unwrap(step))


class SGD(torch.optim.SGD):
    """torch's SGD with an unwrapped step."""

    support = SgdSupport
    step = unwrap_step(torch.optim.SGD.step)


class AdamW(torch.optim.AdamW):
    """torch's AdamW with an unwrapped step."""

    support = AdamWSupport
    step = unwrap_step(torch.optim.AdamW.step)


# Mark these methods of the base class as excluded already. Otherwise torch would import its compiler to exclude them.
for _name in UNCOMPILED_METHODS:
    _method = inspect.unwrap(getattr(torch.optim.Optimizer, _name))
    vars(_method).setdefault("__dynamo_disable", _method)
