"""Preprocessing of networks from torchvision and timm, with Pillow's antialiased resizing.

    views = PillowViews("bicubic", 0.95, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    views.name                 "source:bicubic:0.95:0.485,0.456,0.406:0.229,0.224,0.225"
    parse_name(views.name)     the same views

The name is the value of a recipe's data.preprocess; `source` alone stands for the settings that the network's package,
torchvision or timm, has for the network.
Evaluation resizes the shorter side and crops the centre. Training takes a random crop (area 8 to 100 %, ratio 3/4 to
4/3 on a log scale, as RandomResizedCrop does), resizes it, and mirrors it with probability 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from viaduct.data.source import Pixels
from viaduct.errors import BadValue

PREFIX = "source"
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
# Parameters of RandomResizedCrop: after so many attempts it takes a central crop; ranges of a crop's area, as a
# fraction of the image's, and of its width / height.
ATTEMPTS = 10
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


@dataclass(frozen=True)
class PillowViews:
    """Preprocessing settings of a network; mean and (standard) deviation are for pixels from 0 to 1."""

    interpolation: str
    crop_share: float  # the side of the evaluation crop is this share of the resized image's shorter side
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    @property
    def name(self) -> str:
        """Settings as text, for a recipe's `data.preprocess`."""
        mean, deviation = (",".join(f"{value:.9g}" for value in values) for values in (self.mean, self.deviation))
        return f"{PREFIX}:{self.interpolation}:{self.crop_share:.9g}:{mean}:{deviation}"

    def cut_centre(self, pixels: Pixels, size: int) -> Pixels:
        """Resize the shorter side and crop the centre, as in evaluation."""
        height, width = pixels.shape[:2]
        shorter = max(size, math.floor(size / self.crop_share + 1e-6))  # 1e-6: in case the quotient is rounded down
        if height <= width:
            sides = (shorter, int(shorter * width / height))
        else:
            sides = (int(shorter * height / width), shorter)
        resized = self.resize(pixels, sides)
        top, left = (round((side - size) / 2.0) for side in sides)
        return resized[top : top + size, left : left + size]

    def cut_random(self, pixels: Pixels, size: int, generator: np.random.Generator) -> Pixels:
        """Take a random crop, resize it, mirror it with probability 1/2, as in training."""
        top, left, height, width = draw_box(pixels.shape[0], pixels.shape[1], generator)
        crop = self.resize(pixels[top : top + height, left : left + width], (size, size))
        return crop[:, ::-1] if generator.random() < 0.5 else crop

    def resize(self, pixels: Pixels, sides: tuple[int, int]) -> Pixels:
        """Resize with Pillow, antialiased."""
        from PIL import Image

        if pixels.shape[:2] == sides:
            return pixels
        method = Image.Resampling[self.interpolation.upper()]
        return np.asarray(Image.fromarray(pixels).resize((sides[1], sides[0]), method))


def draw_box(height: int, width: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a random crop; a large central one if all attempts fail."""
    low, high = (math.log(ratio) for ratio in RATIO)
    for _ in range(ATTEMPTS):
        area = height * width * generator.uniform(*AREA)
        ratio = math.exp(generator.uniform(low, high))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            top = int(generator.integers(0, height - down + 1))
            left = int(generator.integers(0, width - across + 1))
            return top, left, down, across
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    across, down = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
    return (height - down) // 2, (width - across) // 2, down, across


@cache
def parse_name(name: str) -> PillowViews:
    """Return the settings that a recipe's `data.preprocess` gives as text; raise `BadValue` for any other text."""
    try:
        prefix, interpolation, share, mean, deviation = name.split(":")
        means, deviations = (tuple(map(float, text.split(","))) for text in (mean, deviation))
        valid = prefix == PREFIX and interpolation in INTERPOLATIONS and 0 < float(share) <= 1
        if not valid or len(means) != 3 or len(deviations) != 3 or not all(value > 0 for value in deviations):
            raise ValueError(name)
    except ValueError:
        raise BadValue(
            f"data.preprocess is {name!r}, which cannot be read.",
            "It is source:INTERPOLATION:CROP_SHARE:MEAN:DEVIATION, or `source` for the network's own.",
        ) from None
    return PillowViews(interpolation, float(share), means, deviations)
