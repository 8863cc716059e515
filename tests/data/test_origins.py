"""Sources of images: class folders, lists and IDX files, and what is refused before anything is built."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from data.image_sources import JPEG, make_folders, make_idx, make_list
from viaduct.data.origins import find_origin, open_class_folders, open_idx_files, open_image_list
from viaduct.errors import BadData, BadValue


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    origin = open_class_folders(make_folders(tmp_path / "photos", {"car": 2, "train": 2}))
    assert origin.classes == ["car", "train"]


def test_one_refused_file_is_described_in_the_singular(photos: Path) -> None:
    (photos / "bee/notes.txt").write_text("not an image")
    with pytest.raises(BadData, match=r"1 file is neither.*\n  Move it away or convert it\.\n  Records without it"):
        open_class_folders(photos)


def test_advice_about_other_files_names_their_endings_and_never_all_images(photos: Path) -> None:
    for name in ("bee/notes.txt", "ant/list.csv"):
        (photos / name).write_text("not an image")
    with pytest.raises(BadData) as refused:
        open_class_folders(photos)
    assert f"`viaduct data build {photos} --out DIR --ignore '*.csv' --ignore '*.txt'`" in str(refused.value)
    for name in ("bee/notes.txt", "ant/list.csv"):
        (photos / name).rename(photos / f"{name}.jpg")
    with pytest.raises(BadData, match="All are named as an image, but the content is empty, damaged") as refused:
        open_class_folders(photos)
    assert "--ignore" not in str(refused.value)


def test_files_left_by_windows_and_ignored_files_are_skipped(photos: Path) -> None:
    before = open_class_folders(photos).train
    for name in ("Thumbs.db", "desktop.ini", "notes.txt"):
        (photos / "bee" / name).write_text("not an image")
    with pytest.raises(BadData, match=r"JPEG nor PNG: bee/notes\.txt\."):
        open_class_folders(photos)
    assert open_class_folders(photos, ["*.txt"]).train == before


def test_a_folder_that_cannot_be_read_is_an_error(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photos / "bee/more").mkdir()
    scandir = os.scandir

    def fail_on_more(path: object) -> object:
        if str(path).endswith("more"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", fail_on_more)
    with pytest.raises(BadData, match=r"bee/more: could not be read: Permission denied"):
        open_class_folders(photos)


def test_patterns_to_ignore_are_refused_for_a_list(photos: Path) -> None:
    with pytest.raises(BadValue, match=r"patterns to ignore are for folders"):
        find_origin(make_list(photos, "ant/0000.JPEG,ant"), ["*.txt"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: (folder / "1.jpg").write_bytes(JPEG), r"1\.jpg: images must be in class folders"),
        (lambda folder: (folder / "cat").rmdir(), "there are no class folders in it"),
        (lambda folder: None, "cat: no images in the folder of this class"),
    ],
)
def test_folders_that_are_no_class_folders(tmp_path: Path, make, message: str) -> None:
    (tmp_path / "photos/cat").mkdir(parents=True)
    make(tmp_path / "photos")
    with pytest.raises(BadData, match=message):
        open_class_folders(tmp_path / "photos")


def test_a_class_that_is_only_validated(tmp_path: Path) -> None:
    make_folders(tmp_path / "photos/train", {"ant": 2})
    make_folders(tmp_path / "photos/val", {"bee": 2})
    with pytest.raises(BadData, match="bee: there is no such class in"):
        open_class_folders(tmp_path / "photos")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["ant/0000.JPEG"], "line 1: expected path,label, found 'ant/0000.JPEG'"),
        (["ant/0000.JPEG,ant", "ant/9999.JPEG,ant"], "line 2: there is no file"),
        (["ant/0000.JPEG,ant", "ant/0000.JPEG,bee"], r"line 2: ant/0000\.JPEG is in line 1 already"),
        (["list.csv,ant"], r"1 file is neither JPEG nor PNG: list\.csv"),
        (["path,label"], "there are no images in this list"),
    ],
)
def test_a_list_with_a_mistake(photos: Path, lines: list[str], message: str) -> None:
    with pytest.raises(BadData, match=message):
        open_image_list(make_list(photos, *lines))


@pytest.mark.parametrize("header", ["filename,class", "id,path,label"])
def test_another_header_than_ours_is_hinted_at(photos: Path, header: str) -> None:
    with pytest.raises(BadData, match=r"line 1: [\s\S]*a header, it must say path,label or be left out"):
        open_image_list(make_list(photos, header, "ant/0000.JPEG,ant"))


def test_a_missing_file_further_down_is_no_header(photos: Path) -> None:
    with pytest.raises(BadData) as caught:
        open_image_list(make_list(photos, "ant/0000.JPEG,ant", "ant/9999.JPEG,ant"))
    assert caught.value.hints == ()


@pytest.mark.parametrize(
    ("injury", "message"),
    [
        (lambda content: content[:-1], r"expected 436 bytes for \(12, 5, 7\), found 435"),
        (lambda content: b"\1" + content[1:], "not an IDX file of images"),
        (lambda content: content[:3], "not an IDX file of images"),
        (lambda content: content[:4] + b"\xff" * 12, "expected 79,228,162"),
        (lambda content: gzip.compress(content)[:-30], "could not be read"),
    ],
)
def test_damaged_idx_files(tmp_path: Path, injury, message: str) -> None:
    images, labels, _ = make_idx(tmp_path, 12)
    images.write_bytes(injury(images.read_bytes()))
    with pytest.raises(BadData, match=message):
        open_idx_files(images, labels)


def test_idx_files_that_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="12 images, but 8 labels"):
        open_idx_files(make_idx(tmp_path, 12)[0], make_idx(tmp_path, 8)[1])
    with pytest.raises(BadValue, match="expected 4 different names"):
        open_idx_files(*make_idx(tmp_path, 12)[:2], names=("a", "b"))
