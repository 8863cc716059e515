"""Sampling of random crops, and bilinear resizing as in TensorFlow 1.

    draw_crop(sampler, height, width, boxes, generator)          a random Crop(y, x, height, width)
    axis = stretch_axis(start=10, length=300, size=224)          224 positions from pixel 10 to 309
    resample(image, rows_axis, columns_axis)                     float32, one pixel for each pair of positions

An `Axis` has the positions along one direction at which an image is sampled: as many as the result has rows or columns.
The functions for resizing, central crops and mirroring return one; `resample` then reads the pixels. As in TensorFlow,
interpolation uses no pixels outside of a random crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.compiled import find_compiled
from viaduct.data.example import NO_BOXES
from viaduct.data.jpeg import Shrink
from viaduct.errors import BadData

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Boxes = npt.ArrayLike  # N x 4: top, left, bottom, right of each object, as fractions of the image

# Rows of the result that numpy computes at a time, so that the data stay in a core's cache: 500x375 to 224x224 takes
# 0.5 ms, with all rows at a time 2.1 ms.
ROWS_AT_ONCE = 32


class Crop(NamedTuple):
    """Rectangle of an image, in pixels."""

    y: int  # first row
    x: int  # first column
    height: int
    width: int


@dataclass(frozen=True)
class CropSampler:
    """Distribution of a reference's training crops: arguments of `tf.image.sample_distorted_bounding_box`."""

    ratio: tuple[float, float]  # range of width / height
    area: tuple[float, float]  # range, as fractions of the image's area
    uses_boxes: bool = False  # True: a crop must cover a part of an object, if the image has boxes
    # Side of a square: the crop is drawn in it, and then stretched as the square is to the image. None: no square.
    frame: int | None = None
    least_covered: float = 0.1  # share that the crop must cover of an object, or of the image if there are no boxes
    attempts: int = 100  # after these the full image is used


def draw_crop(
    sampler: CropSampler, height: int, width: int, boxes: Boxes | None, generator: np.random.Generator
) -> Crop:
    """Draw a training crop; `boxes` are ignored unless the sampler uses them.

    Heights and ratios are uniformly distributed; in torchvision's RandomResizedCrop, areas and log-ratios are.
    """
    if sampler.frame is not None:
        frame = sampler.frame
        crop = draw_covering(sampler, frame, frame, [], generator)
        # Sizes are truncated, but have at least one pixel.
        crop_height, crop_width = crop.height * height // frame, crop.width * width // frame
        return Crop(crop.y * height // frame, crop.x * width // frame, max(1, crop_height), max(1, crop_width))
    fractions = np.asarray(boxes, dtype=np.float32) if sampler.uses_boxes and boxes is not None else NO_BOXES
    objects = convert_to_pixels(fractions, height, width) if fractions.size else []
    return draw_covering(sampler, height, width, objects, generator)


def draw_covering(
    sampler: CropSampler, height: int, width: int, objects: Sequence[Crop], generator: np.random.Generator
) -> Crop:
    """Draw crops until one covers the share `least_covered` of an object, or of the image if there are no objects.

    Return the full image if all attempts fail.
    """
    full = Crop(0, 0, height, width)
    low, high = sampler.ratio
    for _ in range(sampler.attempts):
        crop = draw_with_ratio(sampler, height, width, low + (high - low) * generator.random(), generator)
        if crop is not None and is_object_covered(crop, objects or [full], sampler.least_covered):
            return crop
    return full


def draw_with_ratio(
    sampler: CropSampler, height: int, width: int, ratio: float, generator: np.random.Generator
) -> Crop | None:
    """Draw a crop of this width / height with a random height.

    Return None if its rounded sides are outside of the sampler's range of areas, or do not fit the image.
    """
    least_area, most_area = (fraction * width * height for fraction in sampler.area)
    tallest = find_tallest(ratio, most_area, height, width)
    shortest = min(round(sqrt(least_area / ratio)), tallest)
    crop_height = shortest + draw_below(tallest - shortest + 1, generator)
    if crop_height * round(crop_height * ratio) < least_area:
        crop_height += 1  # as TensorFlow does, where rounding left the range
    if crop_height * round(crop_height * ratio) > most_area:
        crop_height -= 1
    crop_width = round(crop_height * ratio)
    if not least_area <= crop_height * crop_width <= most_area:
        return None
    if not (0 < crop_height <= height and 0 < crop_width <= width):
        return None
    # As in TensorFlow, the last offset is never drawn unless it is also the first.
    top, left = draw_below(height - crop_height, generator), draw_below(width - crop_width, generator)
    return Crop(top, left, crop_height, crop_width)


def find_tallest(ratio: float, most_area: float, height: int, width: int) -> int:
    """Return the largest height of a crop of this ratio that fits the image and has at most `most_area`."""
    tallest = round(sqrt(most_area / ratio))
    if round(tallest * ratio) > width:
        tallest = int((width + 0.5) / ratio)
        if round(tallest * ratio) > width:
            tallest -= 1
    return min(tallest, height)


def draw_below(choices: int, generator: np.random.Generator) -> int:
    """Draw one of 0 .. choices - 1; return 0 if `choices` is below 1. Three times as fast as `generator.integers`."""
    return int(generator.random() * choices) if choices > 1 else 0


def is_object_covered(crop: Crop, objects: Sequence[Crop], least: float) -> bool:
    """Return True if the crop covers at least the share `least` of one object."""
    return any(
        count_shared_pixels(crop, box) >= least * box.height * box.width
        for box in objects
        if box.height * box.width > 0
    )


def count_shared_pixels(first: Crop, second: Crop) -> int:
    """Return the number of pixels that two rectangles share."""
    rows = min(first.y + first.height, second.y + second.height) - max(first.y, second.y)
    columns = min(first.x + first.width, second.x + second.width) - max(first.x, second.x)
    return max(rows, 0) * max(columns, 0)


def convert_to_pixels(boxes: Boxes, height: int, width: int) -> list[Crop]:
    """Convert boxes to pixels, truncated. An object that then has no area is never covered."""
    fractions = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    if not ((fractions >= 0) & (fractions <= 1)).all() or (fractions[:, 2:] < fractions[:, :2]).any():
        raise BadData(f"boxes must be (top, left, bottom, right) between 0 and 1, got {fractions.tolist()}.")
    edges = (fractions * np.array([height, width, height, width], dtype=np.float32)).astype(int).tolist()
    return [Crop(top, left, bottom - top, right - left) for top, left, bottom, right in edges]


class Axis(NamedTuple):
    """Sampling positions along one direction of an image, each between two neighbouring pixels.

    At a border both pixels are the same. If the axis mirrors the image, the second may be the one before the first.
    """

    first: Indices  # index of one pixel of each pair
    second: Indices  # index of the other
    fraction: Floats  # distance of each position from its first pixel, 0..1

    @property
    def length(self) -> int:
        """Number of positions: that of the result's rows or columns."""
        return len(self.fraction)

    @property
    def positions(self) -> Floats:
        """Positions in pixels."""
        return self.first + self.fraction * (self.second - self.first).astype(np.float32)

    @property
    def pixel_range(self) -> tuple[int, int]:
        """Begin and end of the range of pixels that are read."""
        ends = self.first[0], self.first[-1], self.second[0], self.second[-1]
        return int(min(ends)), int(max(ends)) + 1


def stretch_axis(start: int, length: int, size: int, skip: int = 0, count: int | None = None) -> Axis:
    """Resize `length` pixels from `start` on to `size` positions, as TensorFlow's legacy resize does.

    Position i is at start + i * length / size. The first `skip` positions are left out; of the others the axis has the
    first `count`, or all.
    """
    numbers = make_whole_numbers(skip, size if count is None else skip + count)
    position = numbers * (np.float32(length) / np.float32(size))
    first = position.astype(np.intp)
    fraction = position - first.astype(np.float32)
    first += start
    return Axis(first, np.minimum(first + 1, start + length - 1), fraction)


@lru_cache(maxsize=64)
def make_whole_numbers(begin: int, end: int) -> Floats:
    """Return the whole numbers from `begin` to `end` - 1 as floats; read-only, because they are cached."""
    numbers = np.arange(begin, end, dtype=np.float32)
    numbers.flags.writeable = False
    return numbers


def make_central_axis(length: int, fraction: float, size: int) -> Axis:
    """Resize the central `fraction` of `length` pixels to `size` positions, as `tf.image.crop_and_resize` does.

    The first and the last position are at the two ends of this part. A single position is at its first end.
    """
    begin, end, last = np.float32((1 - fraction) / 2), np.float32((1 + fraction) / 2), np.float32(length - 1)
    step = (end - begin) * last / np.float32(max(size - 1, 1))
    position = begin * last + np.arange(size, dtype=np.float32) * step
    first = position.astype(np.intp)
    return Axis(first, np.minimum(first + 1, length - 1), position - first.astype(np.float32))


def mirror_before(axis: Axis, start: int, length: int) -> Axis:
    """Return the axis for mirroring a crop of `length` pixels from `start` on before resizing."""
    mirror_sum = 2 * start + length - 1  # the indices of a pixel and of its mirror image add up to this
    return Axis(mirror_sum - axis.first, mirror_sum - axis.second, axis.fraction)


def mirror_after(axis: Axis) -> Axis:
    """Return the axis for mirroring after resizing.

    It differs from mirroring before resizing, because TensorFlow's positions are not symmetric.
    """
    return Axis(*(np.ascontiguousarray(part[::-1]) for part in axis))


def shrink_axis(axis: Axis, factor: int, length: int) -> Axis:
    """Convert positions in an image to those in the image that the decoder shrinks by `factor` to `length` pixels."""
    low, high = axis.pixel_range
    begin, last = max(low // factor, 0), min(-(-high // factor), length) - 1  # pixels of the smaller image
    position = np.clip((axis.positions - np.float32((factor - 1) / 2)) / np.float32(factor), begin, last)
    first = position.astype(np.intp)
    return Axis(first, np.minimum(first + 1, last), (position - first.astype(np.float32)).astype(np.float32))


def find_largest_shrink(rows: Axis, columns: Axis) -> Shrink:
    """Return the largest factor, 8, 4, 2 or 1, at which the shrunk image still has a pixel for every position.

    The decoder computes only these factors.
    """
    spacing = min(np.ptp(axis.positions) / max(axis.length - 1, 1) for axis in (rows, columns))
    factors: tuple[Shrink, ...] = (8, 4, 2)
    return next((factor for factor in factors if spacing >= factor), 1)


def resample(image: npt.NDArray[np.uint8], rows: Axis, columns: Axis, out: Floats | None = None) -> Floats:
    """Interpolate between the four pixels around each pair of positions: rows x columns x 3, float32.

    The compiled function of `_lerp.c`, which is used if it was built, releases Python's global lock.
    """
    out = np.empty((rows.length, columns.length, 3), dtype=np.float32) if out is None else out
    lerp = find_compiled("_lerp", "lerp")
    if lerp is None:
        return resample_in_numpy(image, rows, columns, out)
    lerp(np.ascontiguousarray(image), *rows, *columns, out)
    return out


def resample_in_numpy(image: npt.NDArray[np.uint8], rows: Axis, columns: Axis, out: Floats) -> Floats:
    """Compute the same as `resample` where the extension is missing; results differ by rounding."""
    left, right = columns.pixel_range
    # Each row is one flat array of values, three for each pixel.
    first, second = (list_channel_indices(pixels - left) for pixels in (columns.first, columns.second))
    across = Axis(first, second, np.repeat(columns.fraction, 3))
    for start in range(0, rows.length, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        down = Axis(rows.first[part], rows.second[part], rows.fraction[part])
        out[part] = blend_columns(blend_rows(image[:, left:right], down), across).reshape(-1, *out.shape[1:])
    return out


def list_channel_indices(pixels: Indices) -> Indices:
    """Convert indices of pixels to indices of their three channels: 5 to 15, 16 and 17."""
    return (pixels[:, None] * 3 + np.arange(3)).ravel()


def blend_rows(image: npt.NDArray[np.uint8], down: Axis) -> Floats:
    """Interpolate between rows; return one flat array of values for each position of `down`."""
    lines = image[down.first].reshape(down.length, -1).astype(np.float32)
    change = np.subtract(image[down.second].reshape(lines.shape), lines, dtype=np.float32)
    change *= down.fraction[:, None]
    lines += change
    return lines


def blend_columns(lines: Floats, across: Axis) -> Floats:
    """Interpolate between the values of each line: `lines` has one for each row of the result."""
    # No index is out of range; mode="clip" is faster because numpy does not check.
    blended = np.take(lines, across.first, axis=1, mode="clip")
    change = np.take(lines, across.second, axis=1, mode="clip")
    change -= blended
    change *= across.fraction
    blended += change
    return blended
