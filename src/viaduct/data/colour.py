"""Random colour in training, as two of the references have it, on float32 pictures of 0..255.

    vary_like_resnext(picture, draw_resnext(generator))          brightness, contrast about the mean, saturation; clipped
    vary_like_amoebanet(picture, draw_amoebanet(generator))      brightness and the two chroma axes; clipped

What is drawn and what is done with it are apart, so that a test can give TensorFlow the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class ResnextColour(NamedTuple):
    brightness: float  # added. On the 0..255 scale, hence next to nothing: a slip of the reference, kept
    contrast: float
    saturation: float


class AmoebanetColour(NamedTuple):
    brightness: float  # these three are on the 0..1 scale
    blue: float
    red: float


def draw_resnext(generator: np.random.Generator) -> ResnextColour:
    return ResnextColour(generator.uniform(-0.4, 0.4), generator.uniform(0.4, 1.6), generator.uniform(0.4, 1.6))


def draw_amoebanet(generator: np.random.Generator) -> AmoebanetColour:
    brightness = generator.uniform(-32 / 255, 32 / 255)
    return AmoebanetColour(brightness, generator.uniform(-0.1, 0.1), generator.uniform(-0.1, 0.1))


def vary_like_resnext(picture: Floats, colour: ResnextColour) -> Floats:
    """In place."""
    picture += np.float32(colour.brightness)
    stretch_contrast(picture, colour.contrast)
    scale_saturation(picture, colour.saturation)
    return np.clip(picture, 0, 255, out=picture)


def stretch_contrast(picture: Floats, factor: float) -> None:
    mean = picture.mean((0, 1), dtype=np.float32)
    picture -= mean
    picture *= np.float32(factor)
    picture += mean


def scale_saturation(picture: Floats, factor: float) -> None:
    """To HSV, scale S but not beyond 1, and back: each channel moves on a straight line from or to the largest.

    S is (largest - smallest) / largest, so it reaches 1 when the distances are multiplied by the inverse of that.
    """
    largest = picture.max(2, keepdims=True)
    span = largest - picture.min(2, keepdims=True)
    # A grey pixel has no span and stays; one whose largest channel is not positive has no saturation, and turns grey.
    most = np.divide(largest, span, out=np.zeros_like(span), where=span > 0)
    picture -= largest
    picture *= np.clip(most, 0, np.float32(factor), out=most)
    picture += largest


def vary_like_amoebanet(picture: Floats, colour: AmoebanetColour) -> Floats:
    """In place."""
    brightness, blue, red = colour
    shift = (1.402 * red, -0.344136 * blue - 0.714136 * red, 1.772 * blue)
    picture += (np.array(shift, dtype=np.float32) + np.float32(brightness)) * np.float32(255)
    return np.clip(picture, 0, 255, out=picture)
