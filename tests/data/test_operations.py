"""Each operation of an augmentation policy means what Pillow means by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from viaduct.data.operations import CIFAR_SHIFT, OPERATIONS, shift_x

from .photographs import photograph

PIL = pytest.importorskip("PIL")
Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
ImageOps = pytest.importorskip("PIL.ImageOps")

GREY = (128, 128, 128)
IMAGES = {
    "photograph": photograph("chelsea")[20:181, 100:300],
    "dark": photograph("rocket")[:90, :71] // 3,
    "flat": np.full((9, 14, 3), (7, 200, 90), np.uint8),
    "two levels": np.tile(np.array([[10, 10, 10], [40, 50, 60]], np.uint8), (12, 6, 1)),
    "one pixel": np.array([[[3, 4, 5]]], np.uint8),
}
STRENGTHS = (0.0, 0.3, 0.5, 0.9, 1.0)


def affine(image: Any, *six: float) -> Any:
    return image.transform(image.size, Image.Transform.AFFINE, six, fillcolor=GREY)


SAME: dict[str, Callable[[Any, float], Any]] = {
    "identity": lambda image, strength: image,
    "invert": lambda image, strength: ImageOps.invert(image),
    "auto contrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
    "solarize": lambda image, strength: ImageOps.solarize(image, 256 - int(256 * strength)),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * strength)),
    "colour": lambda image, strength: ImageEnhance.Color(image).enhance(0.1 + 1.8 * strength),
    "contrast": lambda image, strength: ImageEnhance.Contrast(image).enhance(0.1 + 1.8 * strength),
    "brightness": lambda image, strength: ImageEnhance.Brightness(image).enhance(0.1 + 1.8 * strength),
    "sharpness": lambda image, strength: ImageEnhance.Sharpness(image).enhance(0.1 + 1.8 * strength),
}
MOVED: dict[str, Callable[[Any, float], Any]] = {
    "rotate": lambda image, share: image.rotate(30 * share, fillcolor=GREY),
    "shear x": lambda image, share: affine(image, 1, 0.3 * share, 0, 0, 1, 0),
    "shear y": lambda image, share: affine(image, 1, 0, 0, 0.3 * share, 1, 0),
    "shift x": lambda image, share: affine(image, 1, 0, int(150 / 331 * share * image.width), 0, 1, 0),
    "shift y": lambda image, share: affine(image, 1, 0, 0, 0, 1, int(150 / 331 * share * image.height)),
}


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("name", SAME)
def test_operations_on_levels_equal_pillows(name: str, strength: float) -> None:
    for what, image in IMAGES.items():
        theirs = np.asarray(SAME[name](Image.fromarray(image), strength)).astype(int)
        difference = abs(OPERATIONS[name](image, strength, 1.0) - theirs)
        assert difference.max() <= (0 if name not in ("colour", "contrast", "brightness", "sharpness") else 1), what
        assert (difference > 0).mean() < 0.001, what


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("name", MOVED)
def test_geometric_operations_equal_pillows_except_between_two_pixels(name: str, strength: float, sign: float) -> None:
    for what, image in IMAGES.items():
        theirs = np.asarray(MOVED[name](Image.fromarray(image), sign * strength))
        different = (OPERATIONS[name](image, strength, sign) != theirs).any(-1)
        assert different.mean() <= 0.005, what


def test_every_operation_is_compared() -> None:
    assert set(SAME) | set(MOVED) == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_input_is_not_modified_and_shapes_stay(name: str) -> None:
    for image in IMAGES.values():
        before = image.copy()
        made = OPERATIONS[name](image, 3.0, -1.0)
        assert np.array_equal(image, before)
        assert (made.shape, made.dtype) == (image.shape, np.uint8)


def test_pixels_from_outside_are_grey() -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    moved = shift_x(image, 1.0, 1.0, most=CIFAR_SHIFT)
    assert (moved[:, 22:] == 128).all()
    assert (moved[:, :22] == 0).all()
