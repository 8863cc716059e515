"""LARS in its two published forms: the trust ratio r scales the learning rate or the gradient.

Scaled rate (TensorFlow, form "contrib" of a recipe); g is the gradient of the loss with its L2 term:

    r = trust * |w| / (|g| + wd * |w| + eps), or 1 if either norm is 0
    acc = m * acc + g;  w -= lr * r * acc

Scaled gradient (Ascend's model zoo, the other form); g is the gradient of the loss without its L2 term:

    r = trust * |w| / (|g| + wd * |w| + eps)
    g' = r * (g + wd * w);  acc = m * acc + g';  w -= lr * (g' + m * acc)

wd is the weight decay, m the momentum. Biases and the parameters of norms have no ratio: r is 1 for them. The ratios
stay on the device. With a scaled gradient, weights that are all zeros have ratio 0 and stay zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from viaduct.recipes import LarsForm
from viaduct.training.optimizer_support import DeviceRateSupport, compute_decayed_gradients, subtract_updates

# Function of this rank's parameters and their norms. It returns the norms of whole layers if layers are split over the
# ranks, and otherwise the norms unchanged.
FullNorms = Callable[[list[Tensor], Tensor], Tensor]
Step = Callable[[dict[str, Any], list[Tensor], list[Tensor], FullNorms], None]


class LarsSupport(DeviceRateSupport):
    """Support of LARS, whose trust ratios need the norms of whole layers."""

    @property
    def decay_in_loss(self) -> bool:
        return bool(self.optimizer.form == "contrib")

    def set_full_norms(self, compute_full_norms: FullNorms) -> None:
        self.optimizer.compute_full_norms = compute_full_norms


class LarsOptimizer(torch.optim.Optimizer):
    """LARS in one of its two forms.

    Each parameter group has its own "weight_decay"; the groups whose entry "adapted" is true have trust ratios.
    """

    support = LarsSupport

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, *, form: LarsForm, momentum: float, trust: float, epsilon: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "trust": trust, "epsilon": epsilon})
        self.form = form
        self.update: Step = step_scaled_rate if form == "contrib" else step_scaled_gradient
        # Replaced if layers are split over the ranks, because each rank then has some rows of a weight only.
        self.compute_full_norms: FullNorms = lambda parameters, norms: norms

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("LarsOptimizer takes no closure")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                momenta = [self.get_momentum(parameter) for parameter in parameters]
                self.update(group, parameters, momenta, self.compute_full_norms)

    def get_momentum(self, parameter: Tensor) -> Tensor:
        """Return the momentum of a parameter; it is created in the first step."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


def step_scaled_rate(
    group: dict[str, Any], parameters: list[Tensor], momenta: list[Tensor], compute_full_norms: FullNorms
) -> None:
    """Update a parameter group by the form in which the ratio scales the learning rate."""
    gradients = compute_decayed_gradients(parameters, group["weight_decay"])
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, gradients)
    updates = momenta
    if group["adapted"]:
        weight_norms, gradient_norms, ratios = compute_trust_ratios(group, parameters, gradients, compute_full_norms)
        usable = (weight_norms > 0) & (gradient_norms > 0)
        ratios = torch.where(usable, ratios, torch.ones_like(ratios))
        updates = list(torch._foreach_mul(momenta, ratios.unbind()))
    subtract_updates(parameters, updates, group["lr"])


def step_scaled_gradient(
    group: dict[str, Any], parameters: list[Tensor], momenta: list[Tensor], compute_full_norms: FullNorms
) -> None:
    """Update a parameter group by the form in which the ratio scales the gradient."""
    gradients = compute_decayed_gradients(parameters, group["weight_decay"])
    if group["adapted"]:
        without_decay = compute_decayed_gradients(parameters, 0.0)
        _, _, ratios = compute_trust_ratios(group, parameters, without_decay, compute_full_norms)
        gradients = list(torch._foreach_mul(gradients, ratios.unbind()))
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, gradients)
    updates = torch._foreach_add(gradients, momenta, alpha=group["momentum"])
    subtract_updates(parameters, updates, group["lr"])


def compute_trust_ratios(
    group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor], compute_full_norms: FullNorms
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the norms of the weights, the norms of the gradients and the trust ratios, one for each parameter."""
    weight_norms = compute_full_norms(parameters, torch.stack(torch._foreach_norm(parameters)))
    gradient_norms = compute_full_norms(parameters, torch.stack(torch._foreach_norm(gradients)))
    denominator = gradient_norms + group["weight_decay"] * weight_norms + group["epsilon"]
    return weight_norms, gradient_norms, group["trust"] * weight_norms / denominator
