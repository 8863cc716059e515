"""Views of an image, and the record that describes the preprocessing of one reference implementation.

    crop_central_four_fifths(height, width, size)     the `View` of an image of this height and width in evaluation
    Preprocessing(evaluation=…, sampler=…, …)         preprocessing of one reference (references/)

A `View` has the rows and columns, not whole numbers, at which the image is sampled to make the network's input of
`size` x `size` pixels. It is computed from the size of the image, before the image is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from viaduct.data.geometry import Axis, CropSampler, Floats, make_central_axis, stretch_axis
from viaduct.data.pillow_views import PillowViews
from viaduct.data.source import Colour

Recolour = Callable[[Floats], Floats]  # changes the colours of an image (colour.py)
DrawColour = Callable[[np.random.Generator], Recolour]


class View(NamedTuple):
    """Positions in the image at which the rows and columns of the network's input are sampled; a change of colours."""

    rows: Axis
    columns: Axis
    recolour: Recolour | None = None  # applied after sampling, before normalisation


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of one reference, in evaluation and in training."""

    # From height and width of the image, and size of the network's input; not called if there are `pillow_views`.
    evaluation: Callable[[int, int, int], View]
    mean: Colour  # a pixel p of 0..255 becomes (p - mean) * scale
    scale: Colour
    sampler: CropSampler | None = None  # distribution of training crops; None: `pillow_views` draws them
    fancy_upsampling: bool = True  # in evaluation: the decoder interpolates subsampled chroma instead of repeating it
    fancy_upsampling_in_training: bool = True
    mirrors_before_resize: bool = True  # False: mirrors after it; the values differ (geometry.mirror_after)
    recolour: DrawColour | None = None  # draws a change of colours in training
    pillow_views: PillowViews | None = None  # for networks of torchvision and timm: Pillow crops and resizes the images


def resize_shorter_side_then_crop(height: int, width: int, size: int) -> View:
    """Resize the shorter side to 8/7 of `size` (256 for 224), then crop the central `size` x `size` pixels."""
    # A side may come out one pixel too short; for a very small `size` it would then be shorter than the crop.
    sides = [max(side, size) for side in scale_to_shorter_side(size * 8 // 7, height, width)]
    margins = [(side - size) // 2 for side in sides]
    return View(stretch_axis(0, height, sides[0], margins[0], size), stretch_axis(0, width, sides[1], margins[1], size))


def scale_to_shorter_side(shorter: int, height: int, width: int) -> tuple[int, int]:
    """Return height and width, scaled so that the shorter one becomes `shorter`.

    As in TensorFlow's official ResNet, products are float32 and truncated, so that a side may be one pixel too short.
    """
    factor = np.float32(shorter) / np.float32(min(height, width))
    return int(np.float32(height) * factor), int(np.float32(width) * factor)


def crop_central_four_fifths(height: int, width: int, size: int) -> View:
    """Crop the central 80 % of each side, as `tf.image.crop_and_resize` does with the box (0.1, 0.1, 0.9, 0.9)."""
    return View(make_central_axis(height, 0.8, size), make_central_axis(width, 0.8, size))


def crop_central_seven_eighths(height: int, width: int, size: int) -> View:
    """Crop the central 87.5 % of each side to whole pixels, then resize."""
    top, left = (int((side - side * 0.875) / 2) for side in (height, width))
    return View(stretch_axis(top, height - 2 * top, size), stretch_axis(left, width - 2 * left, size))
