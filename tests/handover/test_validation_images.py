"""Validation images of a run: encoded, whole ones only, and none where they are gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from viaduct import recipes
from viaduct.data.png import encode_png
from viaduct.handover import validation_images
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import decode_image
from viaduct.handover.validation_images import encode_split, read_validation


def test_weights_without_a_run_have_no_validation_images(classifier: Classifier) -> None:
    assert read_validation(replace(classifier, run=None), 3) == ()


def test_images_are_the_first_of_the_validation_split(classifier: Classifier) -> None:
    expected = classifier.recipe.data.load(None).validation.images  # type: ignore[attr-defined]
    encoded = read_validation(classifier, 3)
    assert len(encoded) == 3
    for data, pixels in zip(encoded, expected, strict=False):
        assert np.array_equal(decode_image(data), pixels)


def test_moved_data_give_no_images(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_images, "get_stored_data_path", lambda record: Path("/nonexistent"))
    records = replace(classifier, recipe=recipes.load("resnet18_imagenet").recipe)
    assert read_validation(records, 3) == ()


def test_damaged_images_are_left_out_and_do_not_count(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode_png(np.zeros((2, 2, 3), np.uint8))
    monkeypatch.setattr(
        validation_images, "encode_split", lambda split: iter([encoded[:30], encoded, b"", encoded, encoded])
    )
    assert read_validation(classifier, 2) == (encoded, encoded)


def test_images_of_files_are_passed_on_as_they_are_stored() -> None:
    folder = [b"first", b"second"]
    fields = SimpleNamespace(fields=lambda index: SimpleNamespace(encoded=memoryview(folder[index])))
    folder_of_files = type("Folder", (), {"__len__": lambda self: 2, "read_fields": staticmethod(fields.fields)})()
    assert list(encode_split(SimpleNamespace(folder=folder_of_files))) == folder
    assert list(encode_split(SimpleNamespace())) == []
