"""Mixup (Zhang et al. 2017) as ResNet-50 v1.5 has it: every picture is mixed with its mirror in the batch.

    pictures = w * pictures + (1 - w) * pictures in reverse order; the labels alike

There is one draw w of Beta(a, a) for each picture. The draws are a pure function of (seed, step), like the order of the
pictures: a resumed run mixes what it would have mixed. They are taken over the whole batch, before it is worked through
in parts, and made from raw Philox words, whose stream NumPy promises to keep.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from viaduct.data.order import Purpose, words


def mixing_weights(alpha: float, seed: int, step: int, count: int) -> npt.NDArray[np.float32]:
    """So many draws of Beta(alpha, alpha)."""
    bits = words(seed, step, Purpose.MIXUP, 2 * count).reshape(2, count) >> np.uint64(11)
    size, turn = (bits.astype(np.float64) + 0.5) * 2.0**-53  # inside of (0, 1)
    # T = sqrt(2a * q) with the sign of the cosine has Student's t distribution with 2a degrees of freedom
    # (Bailey 1994), and 1/2 + T / (2 sqrt(2a + T^2)) has Beta(a, a): no rejection, two words a draw.
    cosine = np.cos(2 * np.pi * turn)
    with np.errstate(over="ignore", divide="ignore"):  # a very small alpha: the weight is 0 or 1
        q = np.expm1(-np.log(size) / alpha) * cosine**2
        share = 1 / np.sqrt(1 + 1 / q)
    draws: npt.NDArray[np.float32] = (0.5 * (1 + np.sign(cosine) * share)).astype(np.float32)
    return draws


def mix(pictures_NCHW: Tensor, labels: Tensor, weights: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The mixed pictures, and for each the share of every class."""
    truth = F.one_hot(labels, classes).to(weights.dtype)
    return mix_pictures(pictures_NCHW, weights), torch.lerp(truth.flip(0), truth, weights.view(-1, 1))


def mix_pictures(pictures_NCHW: Tensor, weights: Tensor) -> Tensor:
    mixed = torch.lerp(pictures_NCHW.flip(0), pictures_NCHW, weights.view(-1, 1, 1, 1))
    return mixed.contiguous(memory_format=torch.channels_last)
