"""Data parts of a recipe, and the messages for wrong ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from viaduct.data.cifar10 import Cifar10
from viaduct.data.shapes import Shapes
from viaduct.data.source import Arrays, ImageSet, Split
from viaduct.errors import BadData, BadValue

SHAPES = Shapes(global_batch=8, size=32)


def blank(count: int) -> Split:
    return Split(np.zeros((count, 4, 4, 3), np.uint8), np.zeros(count, np.int64))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("global_batch", 0),
        ("global_batch", "128"),
        ("global_batch", True),
        ("size", 0),
        ("classes", 0),
        ("pad", -1),
        ("cutout", 1.5),
        ("flip", 1),
        ("normalise", "mean"),
        ("mean", (0.5, 0.5)),
        ("mean", "abc"),
        ("std", (0.5, 0.0, 0.5)),
        ("eval_batch", -8),
        ("workers", -1),
        ("prefetch", 0),
        ("train_images", 0),
        ("validation_images", 0),
        ("draw_seed", -1),
    ],
)
def test_a_bad_value_is_named_with_its_field(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"^({field} must be|data\.{field} is)") as caught:
        replace(SHAPES, **{field: value})
    assert str(value) in str(caught.value)


def test_shapes_are_not_drawn_smaller_than_they_can_be_distinguished() -> None:
    with pytest.raises(BadValue, match=r"data\.size is 15; it must be 16 or more"):
        replace(SHAPES, size=15)
    with pytest.raises(BadValue, match="classes must be 10 for shapes, got 12"):
        replace(SHAPES, classes=12)


def test_cifar10_brings_its_own_mean_and_wants_a_path() -> None:
    source = Cifar10(global_batch=128, size=224)
    assert (source.name, source.needs_path, SHAPES.needs_path) == ("cifar10", True, False)
    assert source.mean == (0.4914, 0.4822, 0.4465)
    assert source.std == (0.2023, 0.1994, 0.2010)


def test_arrays_hand_the_path_to_the_users_function() -> None:
    asked: list[Path | None] = []

    def make_image_set(path: Path | None) -> ImageSet:
        asked.append(path)
        return ImageSet(blank(3), blank(1), ("only",))

    made = Arrays(global_batch=1, size=4, classes=1, make=make_image_set).load(Path("here"))
    assert asked == [Path("here")]
    assert len(made.train) == 3


def test_arrays_without_a_function_or_with_the_wrong_one_say_so() -> None:
    with pytest.raises(BadValue, match="make must be a function"):
        Arrays(global_batch=1, size=4)
    wrong = Arrays(global_batch=1, size=4, make=lambda path: blank(1))  # type: ignore[arg-type, return-value]
    with pytest.raises(BadValue, match="must return an ImageSet, got a Split"):
        wrong.load(None)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64)),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32)),
    ],
)
def test_a_split_takes_only_uint8_images_and_as_many_int64_labels(images: np.ndarray, labels: np.ndarray) -> None:
    with pytest.raises(BadData, match="found"):
        Split(images, labels)


def test_describing_data_does_not_import_torch() -> None:
    code = "import sys, viaduct.data, viaduct.data.order; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
