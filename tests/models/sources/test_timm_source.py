"""Networks of timm: an unknown name gets the closest; images are prepared by its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import UnknownName
from viaduct.models import sources


def test_an_unknown_name_gets_the_closest(stand_in_packages: Path) -> None:
    with pytest.raises(UnknownName, match="Closest is 'tiny_conv'"):
        sources.build("timm:tiny_cnov", 10)


def test_images_are_prepared_as_the_configuration_says(stand_in_packages: Path) -> None:
    settings = sources.read_input("timm:tiny_vit")
    assert settings == sources.InputSettings(32, "bicubic", 0.9, (0.5, 0.5, 0.5), (0.5, 0.25, 0.5))
    assert sources.read_input("timm:headless") == sources.InputSettings()
