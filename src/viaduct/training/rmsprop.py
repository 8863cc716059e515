"""RMSProp as TensorFlow 1 computes it. The differences from torch's are on the right.

    ms  = d * ms + (1 - d) * g^2              starts at 1, not at 0
    mom = m * mom + lr * g / sqrt(ms + eps)   epsilon is inside the root, the learning rate inside the momentum
    w  -= mom

d is `square_decay`, m the momentum; the gradient g includes that of the L2 term. Because the rate is inside the
momentum, a change of the rate takes effect gradually. A TensorFlow checkpoint has ms and mom in the variables whose
names end in /RMSProp and /RMSProp_1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from viaduct.training.optimizer_support import DeviceRateSupport, compute_decayed_gradients


class TfRmsProp(torch.optim.Optimizer):
    """TensorFlow 1's RMSProp; each parameter group has its own "weight_decay".

    It updates all weights of a group by a few operators, and the host never waits for the device.
    """

    support = DeviceRateSupport

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, *, square_decay: float, momentum: float, epsilon: float
    ) -> None:
        defaults = {"lr": lr, "square_decay": square_decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("TfRmsProp takes no closure")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                update_group(group, parameters, [self.get_slots(parameter) for parameter in parameters])

    def get_slots(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return ms and mom of a parameter; they are created in its first step."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["square_average"] = torch.ones_like(parameter)
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state


def update_group(group: dict[str, Any], parameters: list[Tensor], slots: list[dict[str, Tensor]]) -> None:
    squares = [slot["square_average"] for slot in slots]
    momenta = [slot["momentum_buffer"] for slot in slots]
    gradients = compute_decayed_gradients(parameters, group["weight_decay"])
    torch._foreach_mul_(squares, group["square_decay"])
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["square_decay"])
    roots = torch._foreach_add(squares, group["epsilon"])
    torch._foreach_sqrt_(roots)
    torch._foreach_mul_(momenta, group["momentum"])
    if isinstance(group["lr"], Tensor):  # a rate on the device
        steps = torch._foreach_div(gradients, roots)
        torch._foreach_mul_(steps, group["lr"])
        torch._foreach_add_(momenta, steps)
    else:
        torch._foreach_addcdiv_(momenta, gradients, roots, group["lr"])
    torch._foreach_sub_(parameters, momenta)
