"""Networks of torchvision: classifiers only, with the settings of their default weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import BadValue, UnknownName
from viaduct.models import sources


def test_what_is_no_classifier_is_refused(stand_in_packages: Path) -> None:
    with pytest.raises(BadValue, match="torchvision:detector is no classifier"):
        sources.build("torchvision:detector", 10)


def test_an_unknown_name_gets_the_closest(stand_in_packages: Path) -> None:
    with pytest.raises(UnknownName, match="Closest is 'tiny'"):
        sources.build("torchvision:tinny", 10)


def test_images_are_prepared_as_for_the_default_weights(stand_in_packages: Path) -> None:
    settings = sources.read_input("torchvision:tiny")
    assert (settings.size, settings.interpolation, settings.crop_share) == (64, "bilinear", 64 / 72)
    assert settings.mean == (0.485, 0.456, 0.406)
