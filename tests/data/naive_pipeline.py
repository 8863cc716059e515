"""The whole pipeline for one image, written as plainly as possible: what the fast one must equal."""

from __future__ import annotations

import math

import numpy as np

from viaduct.data.order import draw_permutation, draw_uniforms
from viaduct.data.source import Images, Split


def training_image(split: Split, images: Images, *, seed: int, epoch: int, position: int) -> np.ndarray:
    image = split.images[draw_permutation(seed, epoch, len(split))[position]]
    top, left, mirror, hole_top, hole_left = draw_uniforms(seed, epoch, len(split), 5)[position]
    height, width, _ = image.shape
    padded = np.pad(image, ((images.pad, images.pad), (images.pad, images.pad), (0, 0)))
    first_row, first_column = int(top * (2 * images.pad + 1)), int(left * (2 * images.pad + 1))
    cropped = padded[first_row : first_row + height, first_column : first_column + width]
    if images.flip and mirror < 0.5:
        cropped = cropped[:, ::-1]
    normal = normalise(cropped, images)
    middle = int(hole_top * height), int(hole_left * width)
    return resize(with_hole(normal, middle, images.cutout), images.size)


def evaluation_image(split: Split, images: Images, index: int) -> np.ndarray:
    return resize(normalise(split.images[index], images), images.size)


def normalise(image: np.ndarray, images: Images) -> np.ndarray:
    if images.normalise == "mean_std":
        return (image / 255 - np.array(images.mean)) / np.array(images.std)
    deviation = max(image.std(), 1 / math.sqrt(image.size))
    return (image - image.mean()) / deviation


def with_hole(image: np.ndarray, middle: tuple[int, int], side: int) -> np.ndarray:
    holed = image.copy()
    for row in range(middle[0] - side // 2, middle[0] - side // 2 + side):
        for column in range(middle[1] - side // 2, middle[1] - side // 2 + side):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                holed[row, column] = 0
    return holed


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Bilinear between the middles of pixels, which lie at one half; the border is repeated outwards."""
    height, width, _ = image.shape
    result = np.empty((size, size, 3))
    for row in range(size):
        for column in range(size):
            y, x = (row + 0.5) * height / size - 0.5, (column + 0.5) * width / size - 0.5
            result[row, column] = between_four(image, max(y, 0), max(x, 0))
    return result


def between_four(image: np.ndarray, y: float, x: float) -> np.ndarray:
    top, left = int(y), int(x)
    bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
    upper = image[top, left] * (1 - (x - left)) + image[top, right] * (x - left)
    lower = image[bottom, left] * (1 - (x - left)) + image[bottom, right] * (x - left)
    return upper * (1 - (y - top)) + lower * (y - top)
