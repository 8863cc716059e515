"""The mirror of a rehearsal: what is read is there, what is written stays there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from viaduct.rehearsal import scene as scenes
from viaduct.rehearsal.scene import Scene


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "around" / "mine"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "data" / "deep" / "large.bin").write_bytes(b"0" * (scenes.SMALL + 1))
    (folder / "model.pth").write_bytes(b"1" * (scenes.SMALL + 1))
    (folder / "small.cfg").write_text("mine")
    return folder


def set_up(origin: Path, tmp_path: Path) -> Scene:
    scene = Scene(origin, tmp_path / "record" / "mirror")
    scene.set_up()
    return scene


def test_what_is_written_does_not_reach_the_users_files(origin: Path, tmp_path: Path) -> None:
    scene = set_up(origin, tmp_path)
    for name in ("model.pth", "small.cfg", "data/new.txt", "data/deep/new.txt", "../runs.txt"):
        with (scene.work / name).open("r+b" if (scene.work / name).exists() else "wb") as file:
            file.write(b"theirs")
    assert (origin / "small.cfg").read_text() == "mine"
    assert (origin / "model.pth").read_bytes()[:1] == b"1"
    assert sorted(path.name for path in (origin / "data").iterdir()) == ["deep"]
    assert not (origin.parent / "runs.txt").exists()
    assert scene.changed_originals() == []
    written = {name for name, _ in scene.find_written()}
    inside = {f"{origin}/{name}" for name in ("data/deep/new.txt", "data/new.txt", "model.pth", "small.cfg")}
    assert written == {*inside, f"{origin.parent}/runs.txt"}


def test_relative_paths_lead_to_the_folders_around(origin: Path, tmp_path: Path) -> None:
    (origin.parent / "data").mkdir()
    (origin.parent / "data" / "x.txt").write_text("near")
    (tmp_path / "shared.txt").write_text("far")
    scene = set_up(origin, tmp_path)
    assert (scene.work / "../data/x.txt").read_text() == "near"
    assert (scene.work / "../../shared.txt").read_text() == "far"
    assert (scene.work / ("../" * (len(origin.parts) - 1)) / "usr").is_dir()


def test_what_the_users_links_lead_to_is_not_overwritten(origin: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (origin / "out.txt").symlink_to(outside)
    (origin / "latest").symlink_to("data/deep")
    (origin / "circle").symlink_to("circle")
    (origin / "data" / "deep" / "note.txt").write_text("mine")
    scene = set_up(origin, tmp_path)
    (scene.work / "out.txt").write_text("theirs")
    (scene.work / "latest" / "note.txt").write_text("theirs")
    assert outside.read_text() == "mine"
    assert (origin / "data" / "deep" / "note.txt").read_text() == "mine"
    assert (scene.work / "data" / "deep" / "note.txt").read_text() == "theirs"


def test_what_was_changed_behind_a_link_is_noticed(origin: Path, tmp_path: Path) -> None:
    data = tmp_path / "elsewhere"
    data.mkdir()
    (data / "gone.txt").write_text("mine")
    (origin / "linked").symlink_to(data)
    scene = set_up(origin, tmp_path)
    assert scene.changed_originals() == []
    with (scene.work / "data" / "deep" / "large.bin").open("r+b") as file:
        file.write(b"XX")
    (scene.work / "linked" / "gone.txt").unlink()
    (scene.work / "linked" / "new.txt").touch()
    expected = [data / "gone.txt", data / "new.txt", origin / "data" / "deep" / "large.bin"]
    assert scene.changed_originals() == sorted(map(str, expected))


def test_large_data_and_large_checkpoints_are_links_and_history_is_left_out(origin: Path, tmp_path: Path) -> None:
    with (origin / "best.ckpt").open("wb") as file:
        file.truncate(50 << 30)
    scene = set_up(origin, tmp_path)
    assert (scene.work / "data" / "deep" / "large.bin").is_symlink()
    assert (scene.work / "best.ckpt").is_symlink()
    assert not (scene.work / ".git").exists()
    assert list(scene.find_written()) == []


def test_a_folder_with_very_many_entries_is_a_link(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (origin / "data" / "deep" / f"{number}.txt").touch()
    monkeypatch.setattr(scenes, "FULL", 4)
    scene = set_up(origin, tmp_path)
    assert (scene.work / "data" / "deep").is_symlink()
    assert scene.linked == ["deep"]


def test_a_record_within_the_folder_does_not_mirror_itself(origin: Path) -> None:
    (origin / "record").mkdir()
    scene = Scene(origin, origin / "record" / "mirror")
    scene.set_up()
    assert not (scene.work / "record").exists()
    assert (scene.work / "small.cfg").read_text() == "mine"


def test_files_that_go_while_they_are_mirrored_are_left_out(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Scene.wanted

    def wanted(scene: Scene, entry: os.DirEntry[str]) -> bool:
        """As another process does that cleans up its files."""
        if entry.name == "small.cfg":
            os.unlink(entry.path)
        elif entry.name == "deep":
            shutil.rmtree(entry.path)
        return plain(scene, entry)

    monkeypatch.setattr(Scene, "wanted", wanted)
    scene = set_up(origin, tmp_path)
    assert (scene.work / "model.pth").is_file()
    assert not (scene.work / "small.cfg").exists()
    assert list((scene.work / "data" / "deep").iterdir()) == []
