"""Initial weights, drawn as the references draw them.

An initialiser fills one layer in place and ignores layers of other kinds: `network.apply(initialiser)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Initialiser = Callable[[nn.Module], None]

CUT = 2.0  # number of standard deviations at which TensorFlow's truncated normals are cut
# Standard deviation of a standard normal distribution that is cut at CUT. Dividing by it restores the variance that the
# distribution had before the cut.
CUT_NORMAL_DEVIATION = 0.87962566103423978


def build_initialiser(
    fill: Callable[[Tensor], object], fill_classifier: Callable[[Tensor], object] | None = None
) -> Initialiser:
    """Return an initialiser that fills the weights of convolutions and dense layers, and sets dense biases to 0.

    Dense layers are filled by `fill_classifier` if it is given.
    """

    def initialise(layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d):
            fill(layer.weight)
        elif isinstance(layer, nn.Linear):
            (fill_classifier or fill)(layer.weight)
            nn.init.zeros_(layer.bias)

    return initialise


def fill_variance_scaling(weight: Tensor, scale: float = 1.0) -> None:
    """Fill with a normal distribution cut at two standard deviations; then its variance is `scale` / fan-in."""
    fan_in = weight[0].numel()
    fill_cut_normal(weight, math.sqrt(scale / fan_in) / CUT_NORMAL_DEVIATION)


def fill_slim_variance_scaling(weight: Tensor) -> None:
    """Fill as tf.contrib.slim: a normal distribution of variance 1.3 * 2 / fan-out, cut; 1.3 makes up for the cut."""
    fill_cut_normal(weight, math.sqrt(1.3 * 2.0 / weight[:, 0].numel()))


def fill_grouped_glorot_uniform(weight: Tensor) -> None:
    """Fill with Glorot's uniform distribution, for a grouped kernel of TensorFlow: (3, 3, width / groups, width).

    The fan-in of such a kernel is that of one group; the fan-out counts the outputs of all groups.
    """
    fan_in, fan_out = weight[0].numel(), weight[:, 0].numel()
    limit = math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -limit, limit)


def fill_cut_normal(weight: Tensor, deviation: float) -> None:
    """Fill with a normal distribution that has this standard deviation before it is cut at two of them."""
    if weight.is_meta:  # has no values to fill, but erfinv_ would take seconds
        return
    edge = math.erf(CUT / math.sqrt(2))
    # This inverse transform takes an eighth of the time of trunc_normal_, which draws until all values fit.
    with torch.no_grad():
        weight.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * deviation)


# TensorFlow's official ResNet: variance scaling for convolutions, and tf.layers' default for the classifier.
tf_layers = build_initialiser(fill_variance_scaling, nn.init.xavier_uniform_)
# ResNet-50 v1.5 of NVIDIA: variance 2 / fan-in (its flag `weight_init=fan_in`).
nvidia = build_initialiser(partial(fill_variance_scaling, scale=2.0))
# AmoebaNet: variance scaling of tf.contrib.slim with factor 2 and fan-out.
slim = build_initialiser(fill_slim_variance_scaling)
# Listing 5-11 of the CANN book (models/resnet_book.py): a normal distribution with a standard deviation of 0.01.
small_normal = build_initialiser(partial(nn.init.normal_, std=0.01))
