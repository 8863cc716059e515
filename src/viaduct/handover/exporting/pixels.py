"""A recipe's evaluation preprocessing as a torch module, for graphs whose input is decoded pixels.

    pixels = build_preprocessing(recipe.data, image_shape=None)
    pixels(torch.uint8 N x H x W x 3)                       float32 N x 3 x size x size, normalised

The arithmetic is that of data/preprocess.py and data/geometry.py, in float32 and in the same order, with tensors
instead of numbers, so that height and width are variable in the graph. For recipes of images in arrays they are fixed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.data.augment import compute_standardisation
from viaduct.data.preprocess import find_preprocessing, get_normalisation
from viaduct.data.records import Records
from viaduct.data.source import Images, Source
from viaduct.data.views import crop_central_four_fifths, crop_central_seven_eighths
from viaduct.errors import BadValue


class PixelPreprocessing(nn.Module):
    """Module that crops, resizes and normalises decoded images; `shape` is their height and width, if fixed."""

    shape: tuple[int, int] | None = None


def build_preprocessing(source: Source, image_shape: tuple[int, int] | None) -> PixelPreprocessing:
    """Build the module for a recipe's images; `image_shape` is the size of images in arrays, if the run recorded it."""
    if isinstance(source, Records):
        refuse_pillow_views(source)
        return RecordPreprocessing(source.preprocess, source.size)
    if isinstance(source, Images):
        return ArrayPreprocessing(source, image_shape or source.image_shape or (source.size, source.size))
    raise BadValue(f"images of a {type(source).__name__} recipe have no preprocessing that a graph could contain.")


def refuse_pillow_views(source: Records) -> None:
    """Raise BadValue for the preprocessing of a network of torchvision or timm, which a graph cannot contain."""
    if find_preprocessing(source.preprocess).pillow_views:
        raise BadValue(
            "a graph cannot contain the preprocessing of networks of torchvision and timm, which resize with Pillow.",
            "Export the network alone: --input tensor.",
        )


class RecordPreprocessing(PixelPreprocessing):
    """Evaluation preprocessing of the reference `name` (data/references/), after decoding."""

    mean: Tensor
    scale: Tensor
    steps: Tensor

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self.evaluation, self.size = find_preprocessing(name).evaluation, size
        mean, scale = get_normalisation(name)
        self.register_buffer("mean", torch.from_numpy(mean).view(1, 1, 1, 3))
        self.register_buffer("scale", torch.from_numpy(scale).view(1, 1, 1, 3))
        self.register_buffer("steps", torch.arange(size, dtype=torch.float32))  # numbers of the samples along an axis

    def forward(self, pixels_NHWC: Tensor) -> Tensor:
        height, width = pixels_NHWC.shape[1], pixels_NHWC.shape[2]
        rows = self.locate(height, find_shorter_side(height, width))
        columns = self.locate(width, find_shorter_side(height, width))
        resampled = blend(blend(pixels_NHWC, 1, *rows), 2, *columns)
        return ((resampled - self.mean) * self.scale).permute(0, 3, 1, 2)

    def locate(self, length: int, shorter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the two neighbouring pixels of each sample along an axis, and the weight of the second."""
        if self.evaluation is crop_central_four_fifths:
            return self.locate_in_central_box(length)
        if self.evaluation is crop_central_seven_eighths:
            start = length // 16  # int((length - 0.875 * length) / 2)
            return self.locate_stretched(start, length - 2 * start, torch.full((), self.size), torch.full((), 0))
        size = self.size
        factor = torch.full((), size * 8 // 7, dtype=torch.float32) / shorter.to(torch.float32)
        side = (torch.full((), length, dtype=torch.float32) * factor).to(torch.int64).clamp(min=size)
        return self.locate_stretched(0, length, side, (side - size) // 2)

    def locate_stretched(self, start: int, length: int, side: Tensor, skip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Resize `length` pixels from `start` on to `side` samples, and return the `size` samples after `skip`."""
        spacing = torch.full((), length, dtype=torch.float32) / side.to(torch.float32)
        position = (self.steps + skip.to(torch.float32)) * spacing
        first = position.to(torch.int64)
        last = torch.full((), start + length - 1, dtype=torch.int64)
        return first + start, torch.minimum(first + (start + 1), last), position - first.to(torch.float32)

    def locate_in_central_box(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Resize the central four fifths, as tf.image.crop_and_resize does."""
        begin, end = (torch.full((), value, dtype=torch.float32) for value in ((1 - 0.8) / 2, (1 + 0.8) / 2))
        last = torch.full((), length - 1, dtype=torch.float32)
        step = (end - begin) * last / max(self.size - 1, 1)
        position = begin * last + self.steps * step
        first = position.to(torch.int64)
        after = torch.minimum(first + 1, torch.full((), length - 1, dtype=torch.int64))
        return first, after, position - first.to(torch.float32)


def find_shorter_side(height: int, width: int) -> Tensor:
    """Return the shorter side as a tensor, because sizes are variable in a graph."""
    return torch.minimum(*(torch.full((), side, dtype=torch.int64) for side in (height, width)))


def blend(pixels_NHWC: Tensor, axis: int, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Interpolate between neighbouring pixels along an axis; `weight` is the weight of the second."""
    before = pixels_NHWC.index_select(axis, first).to(torch.float32)
    after = pixels_NHWC.index_select(axis, second).to(torch.float32)
    return before + (after - before) * weight.view(-1, *[1] * (3 - axis))


class ArrayPreprocessing(PixelPreprocessing):
    """Evaluation preprocessing of images in arrays, all of this `shape`: normalise, then resize."""

    mean: Tensor
    scale: Tensor

    def __init__(self, source: Images, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape, self.size = shape, source.size
        self.per_image = source.normalise == "per_image"
        self.register_buffer("mean", torch.tensor(source.mean).view(1, 3, 1, 1) * 255)
        self.register_buffer("scale", 1 / (torch.tensor(source.std).view(1, 3, 1, 1) * 255))

    def forward(self, pixels_NHWC: Tensor) -> Tensor:
        mean, scale = compute_standardisation(pixels_NHWC) if self.per_image else (self.mean, self.scale)
        normalised = (pixels_NHWC.permute(0, 3, 1, 2).to(torch.float32) - mean) * scale
        if self.shape == (self.size, self.size):
            return normalised
        return F.interpolate(normalised, size=(self.size, self.size), mode="bilinear", align_corners=False)
