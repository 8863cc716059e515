"""The short run of shapes opened, and its validation images as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.data.png import encode_png
from viaduct.handover.classifier import Classifier, open_run


@pytest.fixture(scope="session")
def classifier(shapes_run: Path) -> Classifier:
    return open_run(shapes_run)


@pytest.fixture(scope="session")
def images(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The validation images of the run as PNG files, named by number and class."""
    folder = tmp_path_factory.mktemp("images")
    validation = classifier.recipe.data.load(None).validation
    for number, (pixels, label) in enumerate(zip(validation.images, validation.labels, strict=True)):
        (folder / f"{number:03}-{label}.png").write_bytes(encode_png(pixels))
    return folder
