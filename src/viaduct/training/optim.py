"""Optimizers and losses from a recipe's parts; torch's own wherever it computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.recipes import AdamW, CrossEntropy, Recipe, Sgd

Loss = Callable[[Tensor, Tensor], Tensor]
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def build_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer over the model's trainable parameters, those that decay in the first group."""
    # One kernel for all weights where torch ships one; elsewhere its default.
    fused = next(model.parameters()).device.type in ("cpu", "cuda") or None
    match recipe.optimizer:
        case Sgd() as part:
            groups = decay_groups(model, part.decay, part.weight_decay)
            return torch.optim.SGD(
                groups, lr=part.lr, momentum=part.momentum, nesterov=part.nesterov and part.momentum > 0, fused=fused
            )
        case AdamW() as part:
            groups = decay_groups(model, part.decay, part.weight_decay)
            return torch.optim.AdamW(groups, lr=part.lr, betas=part.betas, eps=part.epsilon, fused=fused)
        case own:
            built: torch.optim.Optimizer = own([p for p in model.parameters() if p.requires_grad])
            return built


def decay_groups(model: nn.Module, decay: Literal["all", "not_norm", "weights"], amount: float) -> list[dict[str, Any]]:
    decaying = {id(parameter) for parameter in decaying_parameters(model, decay)}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if id(p) in decaying], "weight_decay": amount},
        {"params": [p for p in trainable if id(p) not in decaying], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def decaying_parameters(model: nn.Module, decay: Literal["all", "not_norm", "weights"]) -> Iterable[nn.Parameter]:
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            norm = isinstance(module, NORMS)
            if decay == "all" or (not norm and (decay == "not_norm" or name != "bias")):
                yield parameter


@torch.no_grad()
def l2_loss(optimizer: torch.optim.Optimizer) -> Tensor:
    """The weight decay as a term of the loss: half the decay times the squared weights (not for AdamW)."""
    terms = [
        0.5 * group["weight_decay"] * torch.stack(torch._foreach_norm(group["params"])).square().sum()
        for group in optimizer.param_groups
        if group.get("weight_decay") and not isinstance(optimizer, torch.optim.AdamW)
    ]
    return torch.stack([term.cpu() for term in terms]).sum() if terms else torch.zeros(())


def build_loss(recipe: Recipe, *, training: bool) -> Loss:
    """The recipe's loss; smoothing belongs to training only."""
    if not isinstance(recipe.loss, CrossEntropy):
        own: Loss = recipe.loss
        return own
    smoothing = recipe.loss.label_smoothing if training else 0.0
    if recipe.loss.spread == "others":
        # e/(C-1) on each other class equals torch's e'/C on every class with e' = e*C/(C-1).
        smoothing *= recipe.data.classes / (recipe.data.classes - 1)
    return lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=smoothing)
