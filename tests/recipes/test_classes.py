"""The data decide how many classes there are, unless somebody says otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadValue
from viaduct.recipes import LoadedRecipe, load
from viaduct.recipes._classes import match_classes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "labels.txt").write_text("1:ant\n2:bee\n3:cat\n")
    return tmp_path


def with_classes(classes: int, name: str = "resnet18_imagenet") -> LoadedRecipe:
    loaded = load(name)
    return replace(loaded, recipe=replace(loaded.recipe, data=replace(loaded.recipe.data, classes=classes)))


def test_data_that_say_nothing_change_nothing(tmp_path: Path) -> None:
    loaded = load("resnet18_imagenet")
    for path in (None, SYNTHETIC, tmp_path, tmp_path / "nowhere", Path("\0")):
        assert match_classes(loaded, path, set()) == (loaded, "")
    taster = load("shapes_taster")
    assert match_classes(taster, tmp_path, {"data.classes"}) == (taster, "")


@pytest.mark.parametrize(("name", "outputs"), [("resnet18_imagenet", 4), ("resnet50_v15_imagenet", 3)])
def test_a_shipped_recipe_gets_the_classes_of_the_data(name: str, outputs: int, folder: Path) -> None:
    loaded, note = match_classes(load(name), folder, set())
    assert loaded.recipe.data.classes == outputs
    assert f"{folder / 'labels.txt'} has 3 classes, labels 1 to 3" in note
    assert "instead of the recipe's 1,001" in note


@pytest.mark.parametrize("name", ["resnet18_imagenet", "resnet50_v15_imagenet"])
def test_imagenet_has_the_outputs_of_the_references(name: str, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"{label}:n{label}\n" for label in range(1, 1001)))
    assert match_classes(load(name), tmp_path, set()) == (load(name), "")


def test_class_folders_count_as_records_do(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    loaded, note = match_classes(load("resnet18_imagenet"), tmp_path, set())
    assert loaded.recipe.data.classes == 3
    assert f"{tmp_path} has 2 classes" in note


@pytest.mark.parametrize("classes", [4, 5])
def test_a_number_that_fits_is_kept(classes: int, folder: Path) -> None:
    loaded = with_classes(classes)
    assert match_classes(loaded, folder, {"data.classes"}) == (loaded, "")


def test_as_many_outputs_as_classes_count_labels_from_zero(folder: Path) -> None:
    loaded, note = match_classes(with_classes(3), folder, {"data.classes"})
    assert (loaded.recipe.data.classes, loaded.recipe.data.label_shift) == (3, -1)
    assert "labels 1 to 3: with 3 outputs they are counted from 0" in note
    with pytest.raises(BadValue, match="--classes 3 disagrees") as refusal:
        match_classes(with_classes(3), folder, {"data.classes", "data.label_shift"})
    assert "give --classes 4." in str(refusal.value)  # not 3 again: the labels stay where the user put them
    (folder / "labels.txt").write_text("0:ant\n1:bee\n2:cat\n")
    assert match_classes(with_classes(3), folder, {"data.classes"}) == (with_classes(3), "")
    with pytest.raises(BadValue, match="--classes 2 disagrees"):
        match_classes(with_classes(2), folder, {"data.classes"})


@pytest.mark.parametrize("classes", [1, 2, 6, 1001])
def test_a_number_that_disagrees_is_refused_with_both_and_the_file(classes: int, folder: Path) -> None:
    with pytest.raises(BadValue) as refusal:
        match_classes(with_classes(classes), folder, {"data.classes"})
    output = str(refusal.value)
    assert f"--classes {classes} disagrees" in output
    assert f"{folder / 'labels.txt'} has 3 classes" in output
    assert "give --classes 4" in output


def test_a_recipe_file_is_refused_unless_it_says_nothing(folder: Path) -> None:
    own = replace(with_classes(7), file=Path("mine.py"))
    with pytest.raises(BadValue, match=r"data.classes=7 of mine.py disagrees"):
        match_classes(own, folder, set())
    with pytest.raises(BadValue, match="To fit the data, give --classes 4; --classes 3 makes the labels begin with 0"):
        match_classes(own, folder, {"data.classes"})
    silent = replace(load("resnet18_imagenet"), file=Path("mine.py"))
    assert match_classes(silent, folder, set())[0].recipe.data.classes == 4
