"""Arithmetic on lists of tensors that several optimizers share; nothing is read back to the host."""

from __future__ import annotations

import torch
from torch import Tensor


def decayed_gradients(parameters: list[Tensor], weight_decay: float) -> list[Tensor]:
    """Return the gradients of the loss and its L2 term together."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not weight_decay:
        return gradients
    return list(torch._foreach_add(gradients, parameters, alpha=weight_decay))


def descend(parameters: list[Tensor], updates: list[Tensor] | tuple[Tensor, ...], rate: float | Tensor) -> None:
    """Subtract the updates times the learning rate; a rate that only the device knows is a tensor."""
    if isinstance(rate, Tensor):
        torch._foreach_sub_(parameters, torch._foreach_mul(updates, rate))
    else:
        torch._foreach_add_(parameters, updates, alpha=-rate)
