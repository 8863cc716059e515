"""Images of recipes, and data that are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data.record_files import png, write_split
from training.tiny_runs import RECIPE, make_images
from viaduct.data.source import Source
from viaduct.errors import BadData
from viaduct.recipes import Cifar10, FashionMnist, Records
from viaduct.training.images import check_path, load_images


def test_data_that_need_a_path_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="this recipe trains on cifar10: say where it is with --data DIR"):
        load_images(Cifar10(8, 32), None)
    assert load_images(RECIPE.data, None).names == make_images(None).names


@pytest.mark.parametrize("source", [Cifar10(8, 32), FashionMnist(8, 28), Records(8, 32)])
@pytest.mark.parametrize("name", ["missing", "file", "empty", "class_folders", "pipe.csv", "missing.csv"])
def test_a_bad_path_is_refused_by_the_check_as_by_loading(source: Source, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "class_folders" / "cat").mkdir(parents=True)
    (tmp_path / "class_folders" / "stray.png").write_bytes(png(1))
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BadData) as checked:
        check_path(source, tmp_path / name)
    with pytest.raises(BadData) as loaded:
        source.load(tmp_path / name)
    assert (checked.value.message, checked.value.hints) == (loaded.value.message, loaded.value.hints)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_check_accepts_records_for_validation_only(split: str, tmp_path: Path) -> None:
    write_split(tmp_path, split, [2])
    if split == "validation":
        check_path(Records(8, 32), tmp_path)
        return
    with pytest.raises(BadData, match="there are no validation records"):
        check_path(Records(8, 32), tmp_path)
