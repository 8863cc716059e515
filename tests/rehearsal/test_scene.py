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
    for name in ("model.pth", "small.cfg", "data/new.txt", "data/deep/new.txt", "data/deep/large.bin"):
        with (work / name).open("r+b" if (work / name).exists() else "wb") as file:
            file.write(b"theirs")
    assert (origin / "small.cfg").read_text() == "mine"
    assert (origin / "model.pth").read_bytes()[:1] == b"1"
    assert (origin / "data" / "deep" / "large.bin").read_bytes()[:1] == b"0"
    assert sorted(path.name for path in (origin / "data").iterdir()) == ["deep"]
    assert scene.changed_originals() == []
    expected = ["data/deep/large.bin", "data/deep/new.txt", "data/new.txt", "model.pth", "small.cfg"]
    assert scene.clear() == expected


def test_what_the_users_links_lead_to_is_not_overwritten(origin: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (origin / "out.txt").symlink_to(outside)
    (origin / "latest").symlink_to("data/deep")
    (origin / "circle").symlink_to("circle")
    scene = Scene(origin, tmp_path / "work")
    scene.set_up()
    (scene.folder / "out.txt").write_text("theirs")
    (scene.folder / "latest" / "large.bin").write_text("theirs")
    assert outside.read_text() == "mine"
    assert (origin / "data" / "deep" / "large.bin").read_bytes()[:1] == b"0"
    assert (scene.folder / "data" / "deep" / "large.bin").read_text() == "theirs"


def test_what_was_changed_behind_a_link_is_noticed(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "ROOM", 0)
    data = tmp_path / "elsewhere"
    data.mkdir()
    (data / "gone.txt").write_text("mine")
    (origin / "linked").symlink_to(data)
    scene = Scene(origin, tmp_path / "record" / "work")
    scene.set_up()
    assert scene.changed_originals() == []
    with (scene.folder / "data" / "deep" / "large.bin").open("r+b") as file:
        file.write(b"XX")
    (scene.folder / "linked" / "gone.txt").unlink()
    (scene.folder / "linked" / "new.txt").touch()
    expected = [data / "gone.txt", data / "new.txt", origin / "data" / "deep" / "large.bin"]
    assert scene.changed_originals() == sorted(map(str, expected))


def test_data_beyond_the_room_is_a_link_and_history_is_left_out(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "ROOM", scenes.SMALL)
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
