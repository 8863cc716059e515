"""What a training step needs of an optimizer beyond torch's interface, above all to capture its step.

Capturing means recording the operations of a step as a device graph (CUDA graph), which is then replayed without the
host. An optimizer class declares its support:

    class LarsOptimizer(torch.optim.Optimizer):
        support = LarsSupport

A subclass does not inherit the declaration, because it may compute something else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from viaduct.training.lars import FullNorms
    from viaduct.training.precision import Computation


class OptimizerSupport:
    """The interface of all supports, and the support of an optimizer that declares none: its steps are not captured."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def decay_in_loss(self) -> bool:
        """Return True if the weight decay is the gradient of an L2 term of the loss, as assumed unless declared."""
        return not isinstance(self.optimizer, torch.optim.AdamW)

    @property
    def name(self) -> str:
        return type(self.optimizer).__name__

    @property
    def is_fused(self) -> bool:
        """Return True if torch's fused kernel updates all parameters; it reads learning rates on the device."""
        return all(group.get("fused") for group in self.optimizer.param_groups)

    @property
    def unfused_obstacle(self) -> str:
        """Reason why a step cannot be captured if that needs the fused kernel, and the device has none."""
        return f"{self.name} has no fused form on this device, which could read its learning rate there"

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        """Return the reason why a step cannot be captured, or None.

        `skips_steps`: the optimizer must be able to skip a step whose gradients overflow.
        """
        return f"{self.name} may ask the host for its learning rate"

    def step_with_device_rates(self) -> None:
        """Update the parameters with learning rates that are tensors on the device."""
        self.optimizer.step()

    def count_device_steps(self, limit: int) -> int:
        """Return how many of the coming steps in a row, at most `limit`, need nothing from the host."""
        return limit

    def note_device_step(self) -> None:
        """Count a step that ran on the device alone, if the optimizer counts its steps on the host."""

    def set_epoch(self, epoch: float) -> None:
        """Prepare for the step that ends at this epoch."""

    def observe_passes(self, computation: Computation, scale: float) -> AbstractContextManager[None]:
        """Observe the forward pass within the block and its backward pass, if the optimizer needs it.

        Only the last accumulated part of a step is observed. `scale` is the factor of its loss.
        """
        return nullcontext()

    def set_full_norms(self, compute_full_norms: FullNorms) -> None:
        """Use this function to compute the norms of layers that are split over the ranks."""


class DeviceRateSupport(OptimizerSupport):
    """Support of an optimizer that can compute with learning rates on the device, but cannot skip a step by itself."""

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        return f"{self.name} cannot skip a step by itself, which fp16 needs" if skips_steps else None


class SgdSupport(DeviceRateSupport):
    """Support of torch's SGD; without its fused kernel, `step_sgd` is used, which reads the rate on the device."""

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        return None if self.is_fused else super().find_capture_obstacle(skips_steps)

    def step_with_device_rates(self) -> None:
        if self.is_fused:
            self.optimizer.step()
            return
        for group in self.optimizer.param_groups:
            step_sgd(group, self.optimizer.state)


class AdamWSupport(OptimizerSupport):
    """Support of torch's AdamW, whose fused form can be captured."""

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        return None if self.is_fused else self.unfused_obstacle


TORCH_SUPPORT: dict[type, type[OptimizerSupport]] = {torch.optim.SGD: SgdSupport, torch.optim.AdamW: AdamWSupport}


def support_optimizer(optimizer: torch.optim.Optimizer) -> OptimizerSupport:
    """Return the support that this optimizer's own class declares, or the base class."""
    kind = type(optimizer)
    declared: type[OptimizerSupport] = vars(kind).get("support", TORCH_SUPPORT.get(kind, OptimizerSupport))
    return declared(optimizer)


@torch.no_grad()
def step_sgd(group: dict[str, Any], state: dict[Any, Any]) -> None:
    """Update a parameter group as torch's SGD does; an earlier step of torch's SGD must have created the momenta."""
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    if not parameters:
        return
    updates = compute_decayed_gradients(parameters, group["weight_decay"])
    if group["momentum"]:
        momenta = [state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, updates)
        lookahead = torch._foreach_add(updates, momenta, alpha=group["momentum"]) if group["nesterov"] else momenta
        updates = list(lookahead)
    subtract_updates(parameters, updates, group["lr"])


def compute_decayed_gradients(parameters: list[Tensor], weight_decay: float) -> list[Tensor]:
    """Return the gradients of the loss with its L2 term."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not weight_decay:
        return gradients
    return list(torch._foreach_add(gradients, parameters, alpha=weight_decay))


def subtract_updates(
    parameters: list[Tensor], updates: list[Tensor] | tuple[Tensor, ...], rate: float | Tensor
) -> None:
    """Subtract the updates times the learning rate, a number or a tensor on the device."""
    if isinstance(rate, Tensor):
        torch._foreach_sub_(parameters, torch._foreach_mul(updates, rate))
    else:
        torch._foreach_add_(parameters, updates, alpha=-rate)
