"""Random changes of colour in training, on float32 images of 0..255.

change = draw_saturation_change(generator)      brightness, contrast about the mean, saturation (for ResNeXt)
change = draw_chroma_change(generator)          brightness and the two chroma axes (for AmoebaNet)
change = draw_yiq_change(generator, ranges)     brightness, hue and saturation in YIQ, contrast about the mean
                                                (in every reference with data.increased_aug=on)
change(image)                                   the image, changed in place
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.compiled import find_compiled

Floats = npt.NDArray[np.float32]
# The coefficients of TensorFlow's adjust_hsv_in_yiq, as matrices for row vectors.
TO_YIQ = np.array([[0.299, 0.596, 0.211], [0.587, -0.274, -0.523], [0.114, -0.322, 0.312]])
FROM_YIQ = np.array([[1, 1, 1], [0.95617069, -0.2726886, -1.103744], [0.62143257, -0.64681324, 1.70062309]])


@dataclass(frozen=True)
class SaturationChange:
    """Change of brightness, contrast and saturation; 1 leaves contrast or saturation unchanged."""

    brightness: float  # -0.4 to 0.4, added on the 0..255 scale: almost no effect, a mistake of the reference
    contrast: float
    saturation: float

    def __call__(self, image: Floats) -> Floats:
        image += np.float32(self.brightness)
        stretch_contrast(image, self.contrast)
        scale_saturation(image, self.saturation)
        return np.clip(image, 0, 255, out=image)


def draw_saturation_change(generator: np.random.Generator) -> SaturationChange:
    return SaturationChange(generator.uniform(-0.4, 0.4), generator.uniform(0.4, 1.6), generator.uniform(0.4, 1.6))


@dataclass(frozen=True)
class ChromaChange:
    """Change of brightness and of the two chroma axes, on the scale of 0..1; 0 leaves each unchanged."""

    brightness: float
    blue: float  # added to Cb, the blue-difference chroma
    red: float  # added to Cr

    def __call__(self, image: Floats) -> Floats:
        shift = (1.402 * self.red, -0.344136 * self.blue - 0.714136 * self.red, 1.772 * self.blue)
        change = (np.array(shift, dtype=np.float32) + np.float32(self.brightness)) * np.float32(255)
        image += repeat_over_row(change, image)
        return np.clip(image, 0, 255, out=image)


def draw_chroma_change(generator: np.random.Generator) -> ChromaChange:
    brightness = generator.uniform(-32 / 255, 32 / 255)
    return ChromaChange(brightness, generator.uniform(-0.1, 0.1), generator.uniform(-0.1, 0.1))


class ColourRanges(NamedTuple):
    """Largest changes of colour, given by the recipe with data.increased_aug=on."""

    brightness: float  # largest change, in grey levels of 0..255: the recipe's default of 0.3 has almost no effect
    contrast: float  # the smallest factor; the largest is two minus this
    saturation: float  # the smallest factor; the largest is two minus this
    hue: float  # largest rotation, as a fraction of half a circle


@dataclass(frozen=True)
class YiqChange:
    """Change of brightness, of hue and saturation in YIQ, and of contrast."""

    brightness: float  # added on the 0..255 scale
    hue: float  # rotation of the two chroma axes in radians
    saturation: float
    contrast: float

    def __call__(self, image: Floats) -> Floats:
        image += np.float32(self.brightness)
        image[:] = image @ make_yiq_rotation(self.hue, self.saturation)
        stretch_contrast(image, self.contrast)
        return np.clip(image, 0, 255, out=image)


def draw_yiq_change(generator: np.random.Generator, ranges: ColourRanges) -> YiqChange:
    return YiqChange(
        brightness=generator.uniform(-ranges.brightness, ranges.brightness),
        hue=generator.uniform(-ranges.hue * math.pi, ranges.hue * math.pi),
        saturation=generator.uniform(ranges.saturation, 2 - ranges.saturation),
        contrast=generator.uniform(ranges.contrast, 2 - ranges.contrast),
    )


def make_yiq_rotation(hue: float, saturation: float) -> Floats:
    """Return the matrix that rotates (by `hue` radians) and scales the chroma axes, as adjust_hsv_in_yiq does."""
    cosine, sine = saturation * math.cos(hue), saturation * math.sin(hue)
    rotation = np.array([[1, 0, 0], [0, cosine, sine], [0, -sine, cosine]])
    matrix: Floats = (TO_YIQ @ rotation @ FROM_YIQ).astype(np.float32)
    return matrix


def stretch_contrast(image: Floats, factor: float) -> None:
    """Scale the difference of each channel from its mean, in place."""
    mean: Floats = image.mean(0).mean(0)
    image *= np.float32(factor)
    image += repeat_over_row(mean * np.float32(1 - factor), image)


def scale_saturation(image: Floats, factor: float) -> None:
    """Scale the saturation of HSV, up to at most 1, in place; the compiled function releases Python's global lock."""
    saturate = find_compiled("_lerp", "saturate")
    if saturate is not None and image.flags.c_contiguous:
        saturate(image, factor)
    else:
        scale_saturation_in_numpy(image, factor)


def scale_saturation_in_numpy(image: Floats, factor: float) -> None:
    channels = [image[..., channel] for channel in range(3)]
    largest = np.maximum(np.maximum(channels[0], channels[1]), channels[2])
    span = largest - np.minimum(np.minimum(channels[0], channels[1]), channels[2])
    # Saturation is span / largest, so the factor largest / span would make it 1; no larger factor is used. A grey pixel
    # has no span and stays unchanged; a pixel whose largest channel is not positive becomes grey.
    limited = np.divide(largest, span, out=np.zeros_like(span), where=span > 0)
    np.clip(limited, 0, np.float32(factor), out=limited)
    for channel in channels:
        channel -= largest
        channel *= limited
        channel += largest


def repeat_over_row(channels: Floats, image: Floats) -> Floats:
    """Repeat three numbers, one a channel, for each pixel of a row: numpy adds a row ten times as fast as these."""
    return np.tile(channels, (image.shape[1], 1))
