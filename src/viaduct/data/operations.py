"""Fifteen operations of augmentation policies on uint8 images, H x W x 3.

    OPERATIONS["rotate"](image, 0.9, -1)     rotated clockwise by nine tenths of the strongest rotation, 30 degrees

Each takes an image, a strength and a sign. Strengths of 0 to 1 are the range that AutoAugment published; larger ones
exceed it. Only shears, shifts and the rotation use the sign. The input is never modified. Pixels from outside of the
image are grey, 128. Geometric operations take the nearest pixel, as Pillow does, except for some pixels halfway between
two. Operations on levels are computed by Pillow or have exactly its results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, radians, sin
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

Pixels = npt.NDArray[np.uint8]
Operation = Callable[[Pixels, float, float], Pixels]

FILL_LEVEL = 128  # level of pixels from outside of the image
SHEAR, ROTATION = 0.3, 30.0  # at strength 1: shear factor, degrees
# Shift at strength 1, as a fraction of the side: 150 pixels of 331, the image size in the search of ImageNet's policy.
SHIFT = 150 / 331
CIFAR_SHIFT = 10 / 32  # the same in the published code for CIFAR-10


# Geometry


def transform_affine(image: Pixels, for_x: tuple[float, float, float], for_y: tuple[float, float, float]) -> Pixels:
    """Fill (x, y) with the pixel at (a x + b y + c, d x + e y + f); `for_x` is (a, b, c), `for_y` is (d, e, f)."""
    height, width = image.shape[:2]
    x, y = np.arange(width, dtype=np.float32) + 0.5, np.arange(height, dtype=np.float32)[:, None] + 0.5
    from_x, from_y = (np.floor(a * x + b * y + c).astype(np.int32) for a, b, c in (for_x, for_y))
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    pixels: Pixels = image.reshape(-1, 3).take((from_y * width + from_x) * inside, axis=0)
    pixels[~inside] = FILL_LEVEL
    return pixels


def shear_x(image: Pixels, strength: float, sign: float) -> Pixels:
    return transform_affine(image, (1, sign * SHEAR * strength, 0), (0, 1, 0))


def shear_y(image: Pixels, strength: float, sign: float) -> Pixels:
    return transform_affine(image, (1, 0, 0), (sign * SHEAR * strength, 1, 0))


def shift_x(image: Pixels, strength: float, sign: float, most: float = SHIFT) -> Pixels:
    """Shift to the left or right; at strength 1 by the fraction `most` of the width."""
    return transform_affine(image, (1, 0, sign * int(most * strength * image.shape[1])), (0, 1, 0))


def shift_y(image: Pixels, strength: float, sign: float, most: float = SHIFT) -> Pixels:
    """Shift up or down; at strength 1 by the fraction `most` of the height."""
    return transform_affine(image, (1, 0, 0), (0, 1, sign * int(most * strength * image.shape[0])))


def rotate(image: Pixels, strength: float, sign: float) -> Pixels:
    """Rotate about the centre; anticlockwise if the sign is positive."""
    angle = -radians(sign * ROTATION * strength)
    middle_y, middle_x = image.shape[0] / 2, image.shape[1] / 2
    cosine, sine = cos(angle), sin(angle)
    for_x = (cosine, sine, middle_x - cosine * middle_x - sine * middle_y)
    for_y = (-sine, cosine, middle_y + sine * middle_x - cosine * middle_y)
    return transform_affine(image, for_x, for_y)


# Levels


def apply_with_pillow(change: Callable[[Image.Image], Image.Image], image: Pixels) -> Pixels:
    return np.asarray(change(Image.fromarray(image)))


def invert(image: Pixels, strength: float, sign: float) -> Pixels:
    return np.uint8(255) - image


def solarize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Invert levels from a threshold on; the threshold is 256 (no change) at strength 0 and 0 at 1."""
    threshold = 256 - int(min(256 * strength, 256))
    return apply_with_pillow(partial(ImageOps.solarize, threshold=threshold), image)


def posterize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Keep the upper bits of each level: 8 at strength 0, 4 at 1, and always at least one."""
    dropped = min(round(4 * strength), 7)
    return image & np.uint8(256 - (1 << dropped))


def auto_contrast(image: Pixels, strength: float, sign: float) -> Pixels:
    """Stretch each channel so that its darkest level is 0 and its lightest 255."""
    return apply_with_pillow(ImageOps.autocontrast, image)


def equalize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Equalise the histogram of each channel."""
    return apply_with_pillow(ImageOps.equalize, image)


# Blends of the image with a degraded version: the weight of the image is 0.1 at strength 0 and 1.9 at 1.


def blend(enhancer: Callable[[Image.Image], Any], image: Pixels, strength: float) -> Pixels:
    return apply_with_pillow(lambda opened: enhancer(opened).enhance(0.1 + 1.8 * strength), image)


def colour(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(ImageEnhance.Color, image, strength)


def contrast(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(ImageEnhance.Contrast, image, strength)


def brightness(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(ImageEnhance.Brightness, image, strength)


def sharpness(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(ImageEnhance.Sharpness, image, strength)


def identity(image: Pixels, strength: float, sign: float) -> Pixels:
    return image


# By name: "auto contrast" for auto_contrast. RandAugment draws by position, so the order is part of its results.
OPERATIONS: dict[str, Operation] = {
    operation.__name__.replace("_", " "): operation
    for operation in (
        identity,
        auto_contrast,
        equalize,
        rotate,
        solarize,
        colour,
        posterize,
        contrast,
        brightness,
        sharpness,
        shear_x,
        shear_y,
        shift_x,
        shift_y,
        invert,
    )
}
