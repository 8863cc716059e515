"""Mixup (Zhang et al. 2017) as ResNet-50 v1.5 has it, and cutmix (Yun et al. 2019).

Image i of a batch of N is mixed with its partner, image N - 1 - i:

    mixup     w * images + (1 - w) * images.flip(0), and the same for labels; w is drawn from Beta(a, a) for each image
    cutmix    a box of the image is replaced by the same box of the partner; its share of the area is drawn from
              Beta(a, a), and the labels are mixed by the area

a is the recipe's `mixup` or `cutmix`. With both, a random number for each image decides between them, with equal
probability.

The random numbers are a pure function of (seed, step), like the order of the images, so a resumed run repeats them.
They are drawn for the whole global batch, before it is divided among ranks and accumulated parts, from raw Philox bits:
NumPy promises not to change that stream.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from viaduct.data.order import Purpose, draw_words

Uniform = npt.NDArray[np.float64]


def draw_uniform(seed: int, step: int, purpose: Purpose, rows: int, count: int) -> Uniform:
    """Return rows of uniform numbers strictly between 0 and 1, from the upper 53 of 64 random bits each."""
    bits = draw_words(seed, step, purpose, rows * count).reshape(rows, count) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def draw_beta(alpha: float, radial: Uniform, angular: Uniform) -> npt.NDArray[np.float32]:
    """Return draws of Beta(alpha, alpha) from two uniform numbers each."""
    # The polar method of Bailey 1994, without rejection: T = sqrt(2a * q), with the sign of the cosine, has Student's t
    # distribution with 2a degrees of freedom; 1/2 + T / (2 sqrt(2a + T^2)) then has the distribution Beta(a, a).
    cosine = np.cos(2 * np.pi * angular)
    with np.errstate(over="ignore", divide="ignore"):  # with a very small alpha the draw becomes 0 or 1
        q = np.expm1(-np.log(radial) / alpha) * cosine**2
        distance = 1 / np.sqrt(1 + 1 / q)  # from 1/2, in units of 1/2
    draws: npt.NDArray[np.float32] = (0.5 * (1 + np.sign(cosine) * distance)).astype(np.float32)
    return draws


def draw_mixup_weights(alpha: float, seed: int, step: int, count: int) -> npt.NDArray[np.float32]:
    """Return `count` draws of Beta(alpha, alpha)."""
    return draw_beta(alpha, *draw_uniform(seed, step, Purpose.MIXUP, 2, count))


def draw_cutmix_rows(
    mixup: float, cutmix: float, seed: int, step: int, count: int, size: int
) -> npt.NDArray[np.float32]:
    """Return a row for each image: weight of its label, weight of its pixels, and top, bottom, left, right of a box.

    Inside the box the pixels are the partner's. An image that is mixed by mixup has an empty box; one that is mixed by
    cutmix has weight 1 for its pixels. `mixup` and `cutmix` are the parameters of the distributions Beta(a, a).
    """
    choice, radial, angular, *centre = draw_uniform(seed, step, Purpose.CUTMIX, 5, count)
    rows = np.zeros((count, 6), dtype=np.float32)
    rows[:, 0] = rows[:, 1] = draw_mixup_weights(mixup, seed, step, count) if mixup else 1.0
    half = 0.5 * size * np.sqrt(1 - draw_beta(cutmix, radial, angular))
    edges = np.stack([middle * size + sign * half for middle in centre for sign in (-1, 1)], axis=1)
    boxes = np.clip(np.rint(edges), 0, size)
    areas = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
    is_cut = choice < (0.5 if mixup else 1.0)
    rows[is_cut, 0] = (1 - areas / size**2)[is_cut]
    rows[is_cut, 1] = 1.0
    rows[is_cut, 2:] = boxes[is_cut]
    return rows


def mix(images_NCHW: Tensor, labels: Tensor, weights: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the mixed images, and for each image a row with the share of every class in its label.

    `weights` has one weight for each image (mixup) or one row of `draw_cutmix_rows`.
    """
    one_hot = F.one_hot(labels, classes).to(weights.dtype)
    shares = torch.lerp(one_hot.flip(0), one_hot, find_label_weights(weights).view(-1, 1))
    return mix_images(images_NCHW, weights), shares


def find_label_weights(weights: Tensor) -> Tensor:
    """Return the weight of each image's own label, from weights of mixup or rows of cutmix."""
    return weights if weights.ndim == 1 else weights[:, 0]


def mix_images(images_NCHW: Tensor, weights: Tensor) -> Tensor:
    """Return each image mixed with its partner in the batch."""
    weights = weights.view(-1, 1, 1, 1) if weights.ndim == 1 else find_pixel_weights(weights, *images_NCHW.shape[2:])
    mixed = torch.lerp(images_NCHW.flip(0), images_NCHW, weights.to(images_NCHW.dtype))
    return mixed.contiguous(memory_format=torch.channels_last)


def find_pixel_weights(rows: Tensor, height: int, width: int) -> Tensor:
    """Return the weight of each image's own pixels from rows of cutmix, as N,1,H,W; it is 0 inside the box."""
    _, weight, top, bottom, left, right = (column.view(-1, 1, 1, 1) for column in rows.unbind(1))
    y = torch.arange(height, device=rows.device).view(1, 1, -1, 1)
    x = torch.arange(width, device=rows.device).view(1, 1, 1, -1)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return torch.where(inside, torch.zeros_like(weight), weight)
