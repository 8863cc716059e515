"""Fifteen operations of augmentation policies on uint8 images, H x W x 3, computed as Pillow does.

    OPERATIONS["rotate"](image, 0.9, -1)     rotated clockwise by nine tenths of the strongest rotation, 30 degrees

Each takes an image, a strength and a sign. Strengths of 0 to 1 are the range that AutoAugment published; larger ones
exceed it. Only shears, shifts and the rotation use the sign. The input is never modified. Pixels from outside of the
image are grey, 128. Geometric operations take the nearest pixel, as Pillow does. Operations on levels have exactly
Pillow's results.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, radians, sin

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Operation = Callable[[Pixels, float, float], Pixels]

FILL_LEVEL = 128  # level of pixels from outside of the image
SHEAR, ROTATION = 0.3, 30.0  # at strength 1: shear factor, degrees
# Shift at strength 1, as a fraction of the side: 150 pixels of 331, the image size in the search of ImageNet's policy.
SHIFT = 150 / 331
CIFAR_SHIFT = 10 / 32  # the same in the published code for CIFAR-10
LEVELS = np.arange(256)
# Pillow's SMOOTH: eight neighbours of weight 1 and the pixel itself of weight 5. The table has sum / 13, rounded.
THIRTEENTHS = ((2 * np.arange(13 * 255 + 1) + 13) // 26).astype(np.float32)


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


# A shift of strength 1 moves the image by `most` of its side.
def shift_x(image: Pixels, strength: float, sign: float, most: float = SHIFT) -> Pixels:
    return transform_affine(image, (1, 0, sign * int(most * strength * image.shape[1])), (0, 1, 0))


def shift_y(image: Pixels, strength: float, sign: float, most: float = SHIFT) -> Pixels:
    return transform_affine(image, (1, 0, 0), (0, 1, sign * int(most * strength * image.shape[0])))


def rotate(image: Pixels, strength: float, sign: float) -> Pixels:
    """Rotate about the centre; anticlockwise if the sign is positive."""
    angle = -radians(sign * ROTATION * strength)
    middle_y, middle_x = image.shape[0] / 2, image.shape[1] / 2
    cosine, sine = cos(angle), sin(angle)
    for_x = (cosine, sine, middle_x - cosine * middle_x - sine * middle_y)
    for_y = (-sine, cosine, middle_y + sine * middle_x - cosine * middle_y)
    return transform_affine(image, for_x, for_y)


# Levels of single pixels


def apply_table(image: Pixels, *tables: npt.NDArray[np.int64]) -> Pixels:
    """Replace each level by its entry in a table of 256; there is one table, or one for each channel."""
    if len(tables) == 1:
        return tables[0].astype(np.uint8)[image]
    channels = [table.astype(np.uint8)[image[..., channel]] for channel, table in enumerate(tables)]
    return np.stack(channels, axis=-1)


def invert(image: Pixels, strength: float, sign: float) -> Pixels:
    return np.uint8(255) - image


def solarize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Invert levels from a threshold on; the threshold is 256 (no change) at strength 0 and 0 at 1."""
    threshold = 256 - int(min(256 * strength, 256))
    return apply_table(image, np.where(threshold > LEVELS, LEVELS, 255 - LEVELS))


def posterize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Keep the upper bits of each level: 8 at strength 0, 4 at 1, and always at least one."""
    dropped = min(round(4 * strength), 7)
    return image & np.uint8(256 - (1 << dropped))


def auto_contrast(image: Pixels, strength: float, sign: float) -> Pixels:
    """Stretch each channel so that its darkest level is 0 and its lightest 255."""
    channels = (image[..., channel] for channel in range(3))
    return apply_table(image, *(build_stretch_table(int(channel.min()), int(channel.max())) for channel in channels))


def build_stretch_table(low: int, high: int) -> npt.NDArray[np.int64]:
    """Return the table that stretches levels from `low` to `high` over 0..255."""
    if high <= low:
        return LEVELS
    scale = 255.0 / (high - low)
    return np.clip((LEVELS * scale - low * scale).astype(np.int64), 0, 255)


def equalize(image: Pixels, strength: float, sign: float) -> Pixels:
    """Equalise the histogram of each channel."""
    return apply_table(
        image, *(build_equalise_table(np.bincount(image[..., channel].ravel(), minlength=256)) for channel in range(3))
    )


def build_equalise_table(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the table that equalises a histogram, as Pillow computes it."""
    present = counts[counts > 0]
    step = int(present[:-1].sum()) // 255  # pixels for each step of one level in the result
    if step == 0:
        return LEVELS
    below = np.cumsum(counts) - counts
    return np.minimum((step // 2 + below) // step, 255)


# Blends of the image with a degraded version


def blend(degraded: npt.NDArray[np.float32] | float, image: Pixels, strength: float) -> Pixels:
    """Blend a degraded version with the image.

    The weight of the image is 0.1 at strength 0 and 1.9 at 1; above 1 the result is extrapolated away from `degraded`.
    """
    weight = np.float32(0.1 + 1.8 * strength)
    return np.clip(degraded + weight * (image.astype(np.float32) - degraded), 0, 255).astype(np.uint8)


def colour(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(grey(image)[..., None].astype(np.float32), image, strength)


def contrast(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(float(int(grey(image).mean() + 0.5)), image, strength)


def brightness(image: Pixels, strength: float, sign: float) -> Pixels:
    return blend(0.0, image, strength)


def sharpness(image: Pixels, strength: float, sign: float) -> Pixels:
    """Blend with an image that is smoothed over 3x3 pixels except at its border."""
    smooth = image.astype(np.float32)
    if min(image.shape[:2]) >= 3:
        wide = image.astype(np.uint16)
        rows = wide[:-2] + wide[1:-1] + wide[2:]
        total = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * wide[1:-1, 1:-1]
        smooth[1:-1, 1:-1] = THIRTEENTHS[total]
    return blend(smooth, image, strength)


def grey(image: Pixels) -> npt.NDArray[np.int32]:
    """Return Rec. 601 luma, computed with 16 fractional bits as in Pillow."""
    red, green, blue = (image[..., channel].astype(np.int32) for channel in range(3))
    luma: npt.NDArray[np.int32] = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16
    return luma


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
