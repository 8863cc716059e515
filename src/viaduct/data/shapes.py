"""The built-in data set: ten silhouettes, drawn when the run starts, so training needs no download.

Every image is a pure function of (draw_seed, split, index, size). Colours, position, scale, rotation, light and noise
are drawn independently of the class, and all silhouettes have the same area, so only the shape identifies the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from viaduct.data.order import Purpose, draw_uniforms, make_stream
from viaduct.data.silhouettes import SILHOUETTES, Floats
from viaduct.data.source import Colour, Count, Images, ImageSet, Pixels, PositiveCount, Split
from viaduct.errors import BadValue

NAMES = tuple(SILHOUETTES)
MIN_SIDE = 16  # pixels; in smaller images a star cannot be told from a disc
CHUNK = 320  # images painted at a time, to fit in cache; a multiple of 8 (bytes of a word) and of the 10 classes

# Ranges and limits of the random properties of an image.
AREA = (0.09, 0.20)  # of the silhouette, as a fraction of the image's area
MAX_SHIFT = 0.11  # largest distance from the centre in each direction, as a fraction of the side
TILT = np.pi / 4  # largest rotation in each direction, in radians
DARK, LIGHT = (0.10, 0.42), (0.68, 1.0)  # V in HSV of the darker and the lighter of silhouette and background
SATURATION = (0.15, 0.70)
SHADE = 0.30  # largest relative difference in brightness between an edge of the image and its centre
GRAIN = (0.01, 0.06)  # standard deviation of the noise, as a fraction of white

# Table from a random byte to a value of the normal distribution.
NORMAL_BY_BYTE = np.array([NormalDist().inv_cdf((byte + 0.5) / 256) for byte in range(256)], dtype=np.float32)


@dataclass(frozen=True)
class Shapes(Images):
    """Ten silhouettes, drawn with NumPy; `--data` is not needed."""

    name: ClassVar[str] = "shapes"
    class_names: ClassVar[tuple[str, ...]] = NAMES
    takes_path: ClassVar[bool] = False

    size: Annotated[int, Ge(MIN_SIDE)]
    mean: Colour = (0.425, 0.425, 0.425)
    std: Colour = (0.275, 0.275, 0.275)
    train_images: PositiveCount = 4096
    validation_images: PositiveCount = 1024
    draw_seed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes != len(NAMES):
            raise BadValue(f"classes must be {len(NAMES)} for shapes, got {self.classes}.")

    @property
    def usual_image_count(self) -> int:
        return self.train_images

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    def load(self, path: Path | None = None) -> ImageSet:
        # The splits have different random streams, so that no image is in both.
        train_streams = Purpose.TRAIN_SCENES, Purpose.TRAIN_NOISE
        validation_streams = Purpose.VALIDATION_SCENES, Purpose.VALIDATION_NOISE
        train = draw_split(self.draw_seed, self.train_images, self.size, *train_streams)
        validation = draw_split(self.draw_seed, self.validation_images, self.size, *validation_streams)
        return ImageSet(train, validation, NAMES)


class Scenes(NamedTuple):
    """Random properties of each image, except its noise. Lengths are fractions of the side."""

    centre: Floats  # (N, 2)
    scale: Floats  # (N,): side of the square with the silhouette's area
    tilt: Floats  # (N,)
    foreground: Floats  # (N, 3)
    background: Floats  # (N, 3)
    slope: Floats  # (N, 2): increase of brightness along x and y
    grain: Floats  # (N,)


def draw_split(seed: int, count: int, size: int, scenes_stream: Purpose, noise_stream: Purpose) -> Split:
    """Draw the images of a split and their labels."""
    labels = np.arange(count, dtype=np.int64) % len(NAMES)
    images = np.empty((count, size, size, 3), dtype=np.uint8)
    scenes = draw_scenes(draw_uniforms(seed, 0, count, draws=14, purpose=scenes_stream))
    noise = make_stream(seed, 0, noise_stream)
    for start in range(0, count, CHUNK):
        chunk = slice(start, start + CHUNK)
        images[chunk] = paint(Scenes(*(field[chunk] for field in scenes)), size, noise)
    return Split(images, labels)


def draw_scenes(draws: Floats) -> Scenes:
    """Return scenes made from numbers in [0, 1), a row for each image; the order of the columns must not change."""
    column = iter(draws.T)
    centre = 0.5 + MAX_SHIFT * (2 * np.stack([next(column), next(column)], axis=-1) - 1)
    scale = np.sqrt(scale_to_range(AREA, next(column)))
    tilt = TILT * (2 * next(column) - 1)
    hue = next(column)
    other_hue = hue + scale_to_range((0.25, 0.75), next(column))
    dark = convert_hsv_to_rgb(hue, scale_to_range(SATURATION, next(column)), scale_to_range(DARK, next(column)))
    light = convert_hsv_to_rgb(other_hue, scale_to_range(SATURATION, next(column)), scale_to_range(LIGHT, next(column)))
    swapped = (next(column) < 0.5)[:, None]
    slope = 2 * SHADE * (2 * np.stack([next(column), next(column)], axis=-1) - 1)
    foreground, background = np.where(swapped, dark, light), np.where(swapped, light, dark)
    return Scenes(centre, scale, tilt, foreground, background, slope, scale_to_range(GRAIN, next(column)))


def scale_to_range(ends: tuple[float, float], draw: Floats) -> Floats:
    """Scale numbers in [0, 1) to a range."""
    low, high = np.float32(ends[0]), np.float32(ends[1])
    return low + (high - low) * draw


def convert_hsv_to_rgb(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    """Convert colours; the hue is in turns."""
    sixths = (6 * hue[:, None] + np.array([0, 4, 2], dtype=np.float32)) % 6
    pure = np.clip(np.abs(sixths - 3) - 1, 0, 1)
    mixed: Floats = value[:, None] * (1 + saturation[:, None] * (pure - 1))
    return mixed


def paint(scenes: Scenes, size: int, noise: np.random.Philox) -> Pixels:
    """Return uint8 images of the scenes; scene i shows silhouette i modulo 10."""
    middles = (np.arange(size, dtype=np.float32) + 0.5) / size
    x, y = middles[None, None, :], middles[None, :, None]
    inside = compute_coverage(scenes, x, y, size)[..., None]
    light = 1 + scenes.slope[:, :1, None] * (x - 0.5) + scenes.slope[:, 1:, None] * (y - 0.5)
    image = inside * (scenes.foreground - scenes.background)[:, None, None, :]
    image += scenes.background[:, None, None, :]
    image *= light[..., None]
    image += draw_normal(noise, image.shape) * scenes.grain[:, None, None, None]
    image *= 255
    return np.clip(np.rint(image, out=image), 0, 255, out=image).astype(np.uint8)


def compute_coverage(scenes: Scenes, x: Floats, y: Floats, size: int) -> Floats:
    """Return the share of each pixel that is inside the silhouette, approximated from its distance to the outline."""
    scale = scenes.scale[:, None, None]
    dx = (x - scenes.centre[:, :1, None]) / scale
    dy = (y - scenes.centre[:, 1:, None]) / scale
    cosine, sine = np.cos(scenes.tilt)[:, None, None], np.sin(scenes.tilt)[:, None, None]
    across, down = cosine * dx + sine * dy, cosine * dy - sine * dx
    inside = np.empty(across.shape, dtype=np.float32)
    for label, distance in enumerate(SILHOUETTES.values()):
        images = slice(label, None, len(SILHOUETTES))
        distance_in_pixels = distance(across[images], down[images]) * (scale[images] * np.float32(size))
        inside[images] = 0.5 - distance_in_pixels
    return np.clip(inside, 0, 1, out=inside)


def draw_normal(noise: np.random.Philox, shape: tuple[int, ...]) -> Floats:
    """Draw standard normal noise, eight values from each random 64-bit word."""
    count = int(np.prod(shape))
    bytes_: npt.NDArray[np.uint8] = np.asarray(noise.random_raw(-(-count // 8))).astype("<u8").view(np.uint8)
    values: Floats = NORMAL_BY_BYTE[bytes_[:count]].reshape(shape)
    return values
