"""Views of an image, and the description of one reference's preprocessing.

    shorter_side_then_centre(height, width, size)     View of an image in evaluation
    Preprocessing(evaluation=…, sampler=…, …)         preprocessing of one reference (references/)

A `View` is the part of an image that becomes the network's input: positions between its pixels, computed from the size
of the image before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.colour import (
    Ranges,
    draw_chroma,
    draw_increased,
    draw_saturation,
    vary_chroma,
    vary_increased,
    vary_saturation,
)
from viaduct.data.geometry import Axis, Sampler, central_axis, stretch_axis
from viaduct.data.source import Colour
from viaduct.data.source_views import SourceViews

Floats = npt.NDArray[np.float32]
Recolour = Callable[[Floats], Floats]
DrawColour = Callable[[np.random.Generator], Recolour]


class View(NamedTuple):
    """Sampling positions of the rows and columns of a result, and a change of colours."""

    rows: Axis
    columns: Axis
    recolour: Recolour | None = None


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of one reference, in evaluation and in training."""

    evaluation: Callable[[int, int, int], View]  # takes height, width and the size of the network's input
    mean: Colour
    scale: Colour
    sampler: Sampler | None = None  # of training crops; None: `source_views` is used
    fancy_upsampling: bool = True  # in evaluation: chroma is interpolated, not repeated
    fancy_upsampling_in_training: bool = True
    mirrors_before_resize: bool = True
    recolour: DrawColour | None = None  # change of colours in training
    source_views: SourceViews | None = None  # for a network of another package: cuts images with Pillow instead


def shorter_side_then_centre(height: int, width: int, size: int) -> View:
    """Resize the shorter side to 8/7 of `size` (256 for 224), then crop the centre."""
    sides = [max(side, size) for side in with_shorter_side(size * 8 // 7, height, width)]
    margins = [(side - size) // 2 for side in sides]
    return View(stretch_axis(0, height, sides[0], margins[0], size), stretch_axis(0, width, sides[1], margins[1], size))


def with_shorter_side(shorter: int, height: int, width: int) -> tuple[int, int]:
    """Return height and width scaled so that the shorter one becomes `shorter`.

    Products are float32 and truncated, as in the reference, so a side may come out one less.
    """
    factor = np.float32(shorter) / np.float32(min(height, width))
    return int(np.float32(height) * factor), int(np.float32(width) * factor)


def central_four_fifths(height: int, width: int, size: int) -> View:
    """Crop the central 80 % of each direction, as `tf.image.crop_and_resize` does."""
    return View(central_axis(height, 0.8, size), central_axis(width, 0.8, size))


def central_seven_eighths(height: int, width: int, size: int) -> View:
    """Crop the central 87.5 % of each direction."""
    down, across = (int((side - side * 0.875) / 2) for side in (height, width))
    return View(stretch_axis(down, height - 2 * down, size), stretch_axis(across, width - 2 * across, size))


def draw_saturation_change(generator: np.random.Generator) -> Recolour:
    """Draw a change of brightness, contrast and saturation."""
    return partial(vary_saturation, colour=draw_saturation(generator))


def draw_chroma_change(generator: np.random.Generator) -> Recolour:
    """Draw a change of brightness and of the two chroma axes."""
    return partial(vary_chroma, colour=draw_chroma(generator))


def increased_colour(ranges: Ranges) -> DrawColour:
    """Return a function that draws a change of brightness, hue, saturation and contrast within these ranges."""
    return lambda generator: partial(vary_increased, colour=draw_increased(generator, ranges))
