"""The folder of a rehearsal is a mirror: what is read is there, what is written stays there."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import BadRun
from viaduct.rehearsal import scene as scenes
from viaduct.rehearsal.scene import Scene


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "data" / "deep" / "large.bin").write_bytes(b"0" * (scenes.SMALL + 1))
    (folder / "model.pth").write_bytes(b"1" * (scenes.SMALL + 1))
    (folder / "small.cfg").write_text("mine")
    return folder


def test_what_is_written_does_not_reach_the_users_files(origin: Path, tmp_path: Path) -> None:
    scene = Scene(origin, tmp_path / "work")
    scene.set_up()
    work = scene.folder
    for name in ("model.pth", "small.cfg", "data/new.txt", "data/deep/new.txt"):
        (work / name).write_text("theirs")
    assert (origin / "small.cfg").read_text() == "mine"
    assert (origin / "model.pth").read_bytes()[:1] == b"1"
    assert sorted(path.name for path in (origin / "data").iterdir()) == ["deep"]
    assert scene.clear() == ["data/deep/new.txt", "data/new.txt", "model.pth", "small.cfg"]


def test_large_data_is_a_link_and_history_is_left_out(origin: Path, tmp_path: Path) -> None:
    scene = Scene(origin, tmp_path / "work")
    scene.set_up()
    assert (scene.folder / "data" / "deep" / "large.bin").is_symlink()
    assert not (scene.folder / ".git").exists()
    assert scene.clear() == []
    assert list(scene.folder.iterdir()) == []


def test_a_folder_with_very_many_entries_is_a_link(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "ENTRIES", 3)
    scene = Scene(origin, tmp_path / "work")
    scene.set_up()
    assert (scene.folder / "data" / "deep").is_symlink()
    assert scene.linked == ["deep"]


def test_a_record_within_the_folder_does_not_mirror_itself(origin: Path) -> None:
    scene = Scene(origin, origin / "record" / "work")
    (origin / "record").mkdir()
    scene.set_up()
    assert not (scene.folder / "record").exists()
    assert (scene.folder / "small.cfg").read_text() == "mine"


def test_too_many_checkpoints_are_refused(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "COPIED_LIMIT", 1000)
    with pytest.raises(BadRun, match="--here"):
        Scene(origin, tmp_path / "work").set_up()
