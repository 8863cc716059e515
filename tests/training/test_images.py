"""Images of recipes, and data that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.tiny_runs import RECIPE, make_images
from viaduct.errors import BadData
from viaduct.recipes import Cifar10
from viaduct.training.images import load_images


def test_data_that_need_a_path_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="this recipe trains on cifar10: say where it is with --data DIR"):
        load_images(Cifar10(8, 32), None)
    assert load_images(RECIPE.data, None).names == make_images(None).names
