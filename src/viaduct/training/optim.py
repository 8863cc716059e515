"""Builds optimizers and losses from a recipe; torch's own where it computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.recipes import AdamW, CrossEntropy, Lars, Recipe, RmsProp, Sgd, Thor
from viaduct.recipes._parts import Decayed
from viaduct.training import torch_optimizers
from viaduct.training.lars import FullNorms, LarsOptimizer
from viaduct.training.optimizer_support import support_optimizer
from viaduct.training.recipe_code import call_recipe_part
from viaduct.training.rmsprop import TfRmsProp
from viaduct.training.thor import ThorOptimizer

Loss = Callable[[Tensor, Tensor], Tensor]
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def build_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over the model's trainable parameters."""
    settings = recipe.optimizer
    if isinstance(settings, Lars):
        return build_lars(settings, model)
    if not isinstance(settings, Sgd | AdamW | RmsProp | Thor):  # a function of the recipe's author
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        built: torch.optim.Optimizer = call_recipe_part("optimizer", settings, trainable)
        return built
    groups, lr = build_decay_groups(model, settings.decay, settings.weight_decay), settings.lr
    # On these devices torch updates all parameters by one fused kernel.
    fused = next(model.parameters()).device.type in ("cpu", "cuda") or None
    match settings:
        case Sgd(momentum=momentum):
            nesterov = settings.nesterov and momentum > 0
            return torch_optimizers.SGD(groups, lr, momentum=momentum, nesterov=nesterov, fused=fused)
        case AdamW():
            return torch_optimizers.AdamW(groups, lr, betas=settings.betas, eps=settings.epsilon, fused=fused)
        case RmsProp(square_decay=square_decay, momentum=momentum, epsilon=epsilon):
            return TfRmsProp(groups, lr, square_decay=square_decay, momentum=momentum, epsilon=epsilon)
        case Thor():
            return ThorOptimizer(groups, settings, model, fused)


def build_lars(settings: Lars, model: nn.Module) -> LarsOptimizer:
    """Return LARS, with trust ratios for the weights of convolutions and dense layers."""
    is_contrib = settings.form == "contrib"
    default_decay: Decayed = "not_norm" if is_contrib else "weights"
    default_epsilon = 0.0 if is_contrib else 1e-5
    layer_weights = {id(parameter) for parameter in list_decaying_parameters(model, "weights")}
    groups = [
        {**group, "adapted": adapted, "params": [p for p in group["params"] if (id(p) in layer_weights) == adapted]}
        for group in build_decay_groups(model, settings.decay or default_decay, settings.weight_decay)
        for adapted in (True, False)
    ]
    groups = [group for group in groups if group["params"]]
    return LarsOptimizer(
        groups,
        settings.lr,
        form=settings.form,
        momentum=settings.momentum,
        trust=settings.trust,
        epsilon=default_epsilon if settings.epsilon is None else settings.epsilon,
    )


def build_decay_groups(model: nn.Module, decay: Decayed, amount: float) -> list[dict[str, Any]]:
    """Return the parameter groups with and without weight decay, of the trainable parameters; no group is empty."""
    decaying = {id(parameter) for parameter in list_decaying_parameters(model, decay)}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if id(p) in decaying], "weight_decay": amount},
        {"params": [p for p in trainable if id(p) not in decaying], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def list_decaying_parameters(model: nn.Module, decay: Decayed) -> Iterable[nn.Parameter]:
    """Yield the parameters with weight decay: "not_norm" leaves out those of norms, "weights" those and biases."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            is_norm = isinstance(module, NORMS)
            if decay == "all" or (not is_norm and (decay == "not_norm" or name != "bias")):
                yield parameter


@torch.no_grad()
def compute_l2_loss(
    optimizer: torch.optim.Optimizer, compute_full_norms: FullNorms = lambda parameters, norms: norms
) -> Tensor:
    """Return the weight decay as the L2 term of the loss: half the decay times the squared weights.

    It is 0 for AdamW, THOR and the LARS that scales gradients: their decay is not the gradient of a term of the loss.
    """
    if not support_optimizer(optimizer).decay_in_loss:
        return torch.zeros(())
    terms = []
    for group in optimizer.param_groups:
        if group.get("weight_decay"):
            norms = compute_full_norms(group["params"], torch.stack(torch._foreach_norm(group["params"])))
            terms.append(0.5 * group["weight_decay"] * norms.square().sum())
    return torch.stack([term.cpu() for term in terms]).sum() if terms else torch.zeros(())


def compute_smoothing(recipe: Recipe, *, training: bool) -> float:
    """Return the label smoothing of the recipe's cross entropy as torch's argument `label_smoothing`."""
    settings = recipe.loss
    assert isinstance(settings, CrossEntropy)
    smoothing = settings.label_smoothing if training or settings.smooth_evaluation else 0.0
    # spread="others" gives e/(C-1) to each wrong class; torch's e' gives e'/C to every class. So e' is e*C/(C-1).
    classes = recipe.data.classes
    return smoothing * classes / (classes - 1) if settings.spread == "others" and smoothing else smoothing


def build_loss(recipe: Recipe, *, training: bool) -> Loss:
    """Return the recipe's loss. Labels are class numbers, or for mixed images a row of shares for each image."""
    if not isinstance(recipe.loss, CrossEntropy):
        users_loss: Loss = recipe.loss
        return users_loss
    smoothing = compute_smoothing(recipe, training=training)
    return lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=smoothing)
