"""Views of an image, and the record that describes the preprocessing of one reference implementation.

    shorter_side_then_centre(height, width, size)     `View` of an image of this height and width in evaluation
    Preprocessing(evaluation=…, sampler=…, …)         preprocessing of one reference (references/)

A `View` says which part of an image becomes the network's input: the positions, between pixels, at which the image is
sampled. It is computed from the size of the image, before the image is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.geometry import Axis, CropSampler, central_axis, stretch_axis
from viaduct.data.pillow_views import PillowViews
from viaduct.data.source import Colour

Floats = npt.NDArray[np.float32]
Recolour = Callable[[Floats], Floats]  # changes the colours of an image (colour.py)
DrawColour = Callable[[np.random.Generator], Recolour]


class View(NamedTuple):
    """Positions in the image at which the result's rows and columns are sampled, and a change of colours."""

    rows: Axis
    columns: Axis
    recolour: Recolour | None = None


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of one reference, in evaluation and in training."""

    evaluation: Callable[[int, int, int], View]  # from height and width of the image, and size of the network's input
    mean: Colour  # a pixel p of 0..255 becomes (p - mean) * scale
    scale: Colour
    sampler: CropSampler | None = None  # distribution of training crops; None: `pillow_views` draws them
    fancy_upsampling: bool = True  # in evaluation: chroma is interpolated, not repeated
    fancy_upsampling_in_training: bool = True
    mirrors_before_resize: bool = True  # False: mirrors after it, which gives other values
    recolour: DrawColour | None = None  # draws a change of colours in training
    pillow_views: PillowViews | None = None  # for networks of torchvision and timm: Pillow cuts the images


def shorter_side_then_centre(height: int, width: int, size: int) -> View:
    """Resize the shorter side to 8/7 of `size` (256 for 224), then crop the centre."""
    sides = [max(side, size) for side in scale_to_shorter_side(size * 8 // 7, height, width)]
    margins = [(side - size) // 2 for side in sides]
    return View(stretch_axis(0, height, sides[0], margins[0], size), stretch_axis(0, width, sides[1], margins[1], size))


def scale_to_shorter_side(shorter: int, height: int, width: int) -> tuple[int, int]:
    """Return height and width, scaled so that the shorter one becomes `shorter`.

    As in the reference, products are float32 and truncated, so that a side may be one pixel less.
    """
    factor = np.float32(shorter) / np.float32(min(height, width))
    return int(np.float32(height) * factor), int(np.float32(width) * factor)


def central_four_fifths(height: int, width: int, size: int) -> View:
    """Crop the central 80 % of each direction, as `tf.image.crop_and_resize` does."""
    return View(central_axis(height, 0.8, size), central_axis(width, 0.8, size))


def central_seven_eighths(height: int, width: int, size: int) -> View:
    """Crop the central 87.5 % of each direction."""
    top, left = (int((side - side * 0.875) / 2) for side in (height, width))
    return View(stretch_axis(top, height - 2 * top, size), stretch_axis(left, width - 2 * left, size))
