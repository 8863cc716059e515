"""First values of weights, as the references draw them.

An initialiser fills one layer in place and leaves layers of other kinds alone: `network.apply(initialiser)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Initialiser = Callable[[nn.Module], None]

CUT = 2.0  # sigma
# Standard deviation of a unit normal so cut; dividing by it restores the variance asked for.
CUT_NORMAL_DEVIATION = 0.87962566103423978


def tf_layers(layer: nn.Module) -> None:
    """Initialise as tf.layers in TF official's ResNet: scaled convolutions, a glorot uniform classifier."""
    if isinstance(layer, nn.Conv2d):
        variance_scaling(layer.weight)
    elif isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


def nvidia(layer: nn.Module) -> None:
    """Initialise as ResNet-50 v1.5: weights scaled by 2 over their inputs (its flag `weight_init=fan_in`)."""
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        variance_scaling(layer.weight, scale=2.0)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


def slim(layer: nn.Module) -> None:
    """Initialise as AmoebaNet: contrib's variance scaling of factor 2 over the outputs."""
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        slim_variance_scaling(layer.weight)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


def small_normal(layer: nn.Module) -> None:
    """Initialise with normal weights of deviation 0.01 throughout, as in the book's listing 5-11."""
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        nn.init.normal_(layer.weight, std=0.01)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


def variance_scaling(weight: Tensor, scale: float = 1.0) -> None:
    """Fill with a normal cut at two sigma, whose variance is `scale` over the inputs of one output."""
    fan_in = weight[0].numel()
    cut_normal(weight, math.sqrt(scale / fan_in) / CUT_NORMAL_DEVIATION)


def slim_variance_scaling(weight: Tensor, factor: float = 2.0) -> None:
    """Fill as contrib does: a normal of variance 1.3 * `factor` over the outputs of one input, then cut."""
    fan_out = weight[:, 0].numel()
    cut_normal(weight, math.sqrt(1.3 * factor / fan_out))


def glorot_uniform_of_a_grouped_kernel(weight: Tensor) -> None:
    """Fill within Glorot's limit on the stored shape (3, 3, width / groups, width).

    There outputs count across the groups.
    """
    fan_in, fan_out = weight[0].numel(), weight[:, 0].numel()
    limit = math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -limit, limit)


def cut_normal(weight: Tensor, deviation: float) -> None:
    """Fill with a normal of this deviation, cut at two sigma."""
    if weight.is_meta:  # of a network that is built for its names and shapes: erfinv_ alone would take seconds
        return
    edge = math.erf(CUT / math.sqrt(2))
    # By the inverse of the distribution: an eighth of the time of trunc_normal_, which draws until all fit.
    with torch.no_grad():
        weight.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * deviation)
