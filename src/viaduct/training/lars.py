"""LARS in its two published forms, which differ in where the trust ratio stands.

contrib (TensorFlow), g with the gradient of the L2 term:

    r = trust * |w| / (|g| + wd * |w| + eps), 1 where either norm is 0
    acc = m * acc + g;  w -= lr * r * acc

resnext (its own), g without:

    r = trust * |w| / (|g| + wd * |w| + eps)
    g' = r * (g + wd * w);  acc = m * acc + g';  w -= lr * (g' + m * acc)

Normalisation and biases have no ratio: they take the plain momentum step of their form. The ratios stay on
the device. In the second form a kernel that is all zeros has ratio 0 and stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from viaduct.training.rmsprop import decayed_gradients

EPSILONS = {"contrib": 0.0, "resnext": 1e-5}
WholeNorms = Callable[[list[Tensor], Tensor], Tensor]
Step = Callable[[dict[str, Any], list[Tensor], list[Tensor], WholeNorms], None]


class LarsOptimizer(torch.optim.Optimizer):
    """Groups with `adapted` true have trust ratios."""

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        form: Literal["contrib", "resnext"] = "contrib",
        momentum: float = 0.9,
        trust: float = 0.001,
        epsilon: float | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "trust": trust,
            "epsilon": EPSILONS[form] if epsilon is None else epsilon,
            "weight_decay": weight_decay,
            "adapted": True,
        }
        super().__init__(params, defaults)
        self.update: Step = contrib_step if form == "contrib" else resnext_step
        # Of layers that other ranks have parts of: the norms of the whole.
        self.whole_norms: WholeNorms = lambda parameters, norms: norms
        self.decay_in_loss = form == "contrib"

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("LarsOptimizer takes no closure")
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                momenta = [self.momentum_of(parameter) for parameter in parameters]
                self.update(group, parameters, momenta, self.whole_norms)

    def momentum_of(self, parameter: Tensor) -> Tensor:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


def contrib_step(
    group: dict[str, Any], parameters: list[Tensor], momenta: list[Tensor], whole_norms: WholeNorms
) -> None:
    gradients = decayed_gradients(parameters, group["weight_decay"])
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, gradients)
    updates = momenta
    if group["adapted"]:
        weight_norms, gradient_norms, ratios = trust_ratios(group, parameters, gradients, whole_norms)
        usable = (weight_norms > 0) & (gradient_norms > 0)
        ratios = torch.where(usable, ratios, torch.ones_like(ratios))
        updates = list(torch._foreach_mul(momenta, ratios.unbind()))
    descend(parameters, updates, group["lr"])


def resnext_step(
    group: dict[str, Any], parameters: list[Tensor], momenta: list[Tensor], whole_norms: WholeNorms
) -> None:
    gradients = decayed_gradients(parameters, group["weight_decay"])
    if group["adapted"]:
        plain = decayed_gradients(parameters, 0.0)
        _, _, ratios = trust_ratios(group, parameters, plain, whole_norms)
        gradients = list(torch._foreach_mul(gradients, ratios.unbind()))
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, gradients)
    updates = torch._foreach_add(gradients, momenta, alpha=group["momentum"])
    descend(parameters, updates, group["lr"])


def descend(parameters: list[Tensor], updates: list[Tensor] | tuple[Tensor, ...], rate: float | Tensor) -> None:
    """A rate that only the device knows is a tensor."""
    if isinstance(rate, Tensor):
        torch._foreach_sub_(parameters, torch._foreach_mul(updates, rate))
    else:
        torch._foreach_add_(parameters, updates, alpha=-rate)


def trust_ratios(
    group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor], whole_norms: WholeNorms
) -> tuple[Tensor, Tensor, Tensor]:
    """The norms of the weights, those of the gradients, and the ratios, one for each parameter."""
    weight_norms = whole_norms(parameters, torch.stack(torch._foreach_norm(parameters)))
    gradient_norms = whole_norms(parameters, torch.stack(torch._foreach_norm(gradients)))
    below = gradient_norms + group["weight_decay"] * weight_norms + group["epsilon"]
    return weight_norms, gradient_norms, group["trust"] * weight_norms / below
