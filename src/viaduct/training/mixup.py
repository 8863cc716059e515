"""Mixup (Zhang et al. 2017) as ResNet-50 v1.5 has it: every image is mixed with its mirror in the batch; and cutmix.

    images = w * images + (1 - w) * images in reverse order; the labels alike

With cutmix (Yun et al. 2019) a box of an image is replaced by its mirror's, and labels are mixed by the box's area.
With both, a draw for each image decides between them, with equal chances.

There is one draw w of Beta(a, a) for each image. The draws are a pure function of (seed, step), like the order of the
images: a resumed run mixes what it would have mixed. They are taken over the whole batch, before it is worked through
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
    """Return `count` draws of Beta(alpha, alpha)."""
    bits = words(seed, step, Purpose.MIXUP, 2 * count).reshape(2, count) >> np.uint64(11)
    size, turn = (bits.astype(np.float64) + 0.5) * 2.0**-53  # inside of (0, 1)
    return draw_beta(alpha, size, turn)


def draw_beta(alpha: float, size: npt.NDArray[np.float64], turn: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return draws of Beta(alpha, alpha) from two uniform numbers each."""
    # T = sqrt(2a * q) with the sign of the cosine has Student's t distribution with 2a degrees of freedom
    # (Bailey 1994), and 1/2 + T / (2 sqrt(2a + T^2)) has Beta(a, a): no rejection, two words a draw.
    cosine = np.cos(2 * np.pi * turn)
    with np.errstate(over="ignore", divide="ignore"):  # a very small alpha: the weight is 0 or 1
        q = np.expm1(-np.log(size) / alpha) * cosine**2
        share = 1 / np.sqrt(1 + 1 / q)
    draws: npt.NDArray[np.float32] = (0.5 * (1 + np.sign(cosine) * share)).astype(np.float32)
    return draws


def mixing_rows(mixup: float, cutmix: float, seed: int, step: int, count: int, size: int) -> npt.NDArray[np.float32]:
    """Return how each image is mixed, in rows: weight of its label, weight of its pixels, top, bottom, left, right.

    Inside of the box the pixels are the mirror's. A mixed-up image has an empty box, a cut one a weight of 1.
    """
    bits = words(seed, step, Purpose.CUTMIX, 5 * count).reshape(5, count) >> np.uint64(11)
    lot, size_word, turn_word, *centre = (bits.astype(np.float64) + 0.5) * 2.0**-53
    rows = np.zeros((count, 6), dtype=np.float32)
    rows[:, 0] = rows[:, 1] = mixing_weights(mixup, seed, step, count) if mixup else 1.0
    half = 0.5 * size * np.sqrt(1 - draw_beta(cutmix, size_word, turn_word))
    boxes = np.stack([middle * size + side * half for middle in centre for side in (-1, 1)], axis=1)
    boxes = np.clip(np.rint(boxes), 0, size)
    areas = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
    is_cut = lot < (0.5 if mixup else 1.0)
    rows[is_cut, 0] = (1 - areas / size**2)[is_cut]
    rows[is_cut, 1] = 1.0
    rows[is_cut, 2:] = boxes[is_cut]
    return rows


def mix(images_NCHW: Tensor, labels: Tensor, weights: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the mixed images, and for each the share of every class."""
    truth = F.one_hot(labels, classes).to(weights.dtype)
    shares = torch.lerp(truth.flip(0), truth, label_weights(weights).view(-1, 1))
    return mix_images(images_NCHW, weights), shares


def label_weights(weights: Tensor) -> Tensor:
    """Return the weight of each image's own label, from weights of mixup or rows of cutmix."""
    return weights if weights.ndim == 1 else weights[:, 0]


def mix_images(images_NCHW: Tensor, weights: Tensor) -> Tensor:
    """Return each image mixed with its mirror in the batch."""
    shares = weights.view(-1, 1, 1, 1) if weights.ndim == 1 else spread_rows(weights, *images_NCHW.shape[2:])
    mixed = torch.lerp(images_NCHW.flip(0), images_NCHW, shares.to(images_NCHW.dtype))
    return mixed.contiguous(memory_format=torch.channels_last)


def spread_rows(rows: Tensor, height: int, width: int) -> Tensor:
    """Return the weight of each image's own pixels, N,1,H,W: 0 inside of its box."""
    _, weight, top, bottom, left, right = (column.view(-1, 1, 1, 1) for column in rows.unbind(1))
    down = torch.arange(height, device=rows.device).view(1, 1, -1, 1)
    across = torch.arange(width, device=rows.device).view(1, 1, 1, -1)
    inside = (down >= top) & (down < bottom) & (across >= left) & (across < right)
    return torch.where(inside, torch.zeros_like(weight), weight)
