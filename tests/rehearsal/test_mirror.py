"""A mirror has the files that a script reads, and keeps the files that it writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from viaduct.rehearsal import mirror as mirrors
from viaduct.rehearsal.mirror import Mirror


@pytest.fixture
def start_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "around" / "mine"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "data" / "deep" / "large.bin").write_bytes(b"0" * (mirrors.SMALL_FILE + 1))
    (folder / "model.pth").write_bytes(b"1" * (mirrors.SMALL_FILE + 1))
    (folder / "small.cfg").write_text("mine")
    return folder


def set_up(start_folder: Path, tmp_path: Path) -> Mirror:
    mirror = Mirror(start_folder, tmp_path / "record" / "mirror", start_folder)
    mirror.set_up()
    return mirror


def test_what_is_written_does_not_reach_the_users_files(start_folder: Path, tmp_path: Path) -> None:
    mirror = set_up(start_folder, tmp_path)
    for name in ("model.pth", "small.cfg", "data/new.txt", "data/deep/new.txt", "../runs.txt"):
        with (mirror.work / name).open("r+b" if (mirror.work / name).exists() else "wb") as file:
            file.write(b"theirs")
    assert (start_folder / "small.cfg").read_text() == "mine"
    assert (start_folder / "model.pth").read_bytes()[:1] == b"1"
    assert sorted(path.name for path in (start_folder / "data").iterdir()) == ["deep"]
    assert not (start_folder.parent / "runs.txt").exists()
    assert mirror.find_changed_originals() == []
    written = {name for name, _ in mirror.find_written()}
    inside = {f"{start_folder}/{name}" for name in ("data/deep/new.txt", "data/new.txt", "model.pth", "small.cfg")}
    assert written == {*inside, f"{start_folder.parent}/runs.txt"}


def test_relative_paths_lead_to_the_folders_around(start_folder: Path, tmp_path: Path) -> None:
    (start_folder.parent / "data").mkdir()
    (start_folder.parent / "data" / "x.txt").write_text("near")
    (tmp_path / "shared.txt").write_text("far")
    mirror = set_up(start_folder, tmp_path)
    assert (mirror.work / "../data/x.txt").read_text() == "near"
    assert (mirror.work / "../../shared.txt").read_text() == "far"
    assert (mirror.work / ("../" * (len(start_folder.parts) - 1)) / "usr").is_dir()


def test_what_the_users_links_lead_to_is_not_overwritten(start_folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (start_folder / "out.txt").symlink_to(outside)
    (start_folder / "latest").symlink_to("data/deep")
    (start_folder / "circle").symlink_to("circle")
    (start_folder / "data" / "deep" / "note.txt").write_text("mine")
    mirror = set_up(start_folder, tmp_path)
    (mirror.work / "out.txt").write_text("theirs")
    (mirror.work / "latest" / "note.txt").write_text("theirs")
    assert outside.read_text() == "mine"
    assert (start_folder / "data" / "deep" / "note.txt").read_text() == "mine"
    assert (mirror.work / "data" / "deep" / "note.txt").read_text() == "theirs"


def test_what_was_changed_behind_a_link_is_noticed(start_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "elsewhere"
    data.mkdir()
    (data / "gone.txt").write_text("mine")
    (start_folder / "linked").symlink_to(data)
    mirror = set_up(start_folder, tmp_path)
    assert mirror.find_changed_originals() == []
    with (mirror.work / "data" / "deep" / "large.bin").open("r+b") as file:
        file.write(b"XX")
    (mirror.work / "linked" / "gone.txt").unlink()
    (mirror.work / "linked" / "new.txt").touch()
    expected = [data / "gone.txt", data / "new.txt", start_folder / "data" / "deep" / "large.bin"]
    assert mirror.find_changed_originals() == sorted(map(str, expected))


def test_only_compared_files_are_named_as_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "bcd":
        (tmp_path / name).touch()
    monkeypatch.setattr(mirrors, "MAX_COMPARED", 3)
    mirror = Mirror(tmp_path / "here", tmp_path / "record" / "mirror", tmp_path / "here")
    mirror.originals = {str(tmp_path): mirror.read_states(tmp_path)}
    (tmp_path / "b").unlink()  # now `d` is among the first three
    assert mirror.find_changed_originals() == [str(tmp_path / "b")]
    (tmp_path / "a").touch()  # now `c` is not
    (tmp_path / "aa").touch()
    assert mirror.find_changed_originals() == [str(tmp_path / "b")]


def test_large_data_and_large_checkpoints_are_links_and_history_is_left_out(start_folder: Path, tmp_path: Path) -> None:
    with (start_folder / "best.ckpt").open("wb") as file:
        file.truncate(50 << 30)
    mirror = set_up(start_folder, tmp_path)
    assert (mirror.work / "data" / "deep" / "large.bin").is_symlink()
    assert (mirror.work / "best.ckpt").is_symlink()
    assert not (mirror.work / ".git").exists()
    assert list(mirror.find_written()) == []


def test_a_folder_with_very_many_entries_is_a_link(
    start_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (start_folder / "data" / "deep" / f"{number}.txt").touch()
    monkeypatch.setattr(mirrors, "FULL_FOLDER", 4)
    mirror = set_up(start_folder, tmp_path)
    assert (mirror.work / "data" / "deep").is_symlink()


def test_a_record_within_the_folder_does_not_mirror_itself(start_folder: Path) -> None:
    (start_folder / "record").mkdir()
    mirror = Mirror(start_folder, start_folder / "record" / "mirror", start_folder)
    mirror.set_up()
    assert not (mirror.work / "record").exists()
    assert (mirror.work / "small.cfg").read_text() == "mine"


def test_files_that_go_while_they_are_mirrored_are_left_out(
    start_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Mirror.holds_record

    def check_and_clean_up(mirror: Mirror, entry: os.DirEntry[str]) -> bool:
        """Clean up files as another process does."""
        if entry.name == "small.cfg":
            os.unlink(entry.path)
        elif entry.name == "deep":
            shutil.rmtree(entry.path)
        return plain(mirror, entry)

    monkeypatch.setattr(Mirror, "holds_record", check_and_clean_up)
    mirror = set_up(start_folder, tmp_path)
    assert (mirror.work / "model.pth").is_file()
    assert not (mirror.work / "small.cfg").exists()
    assert list((mirror.work / "data" / "deep").iterdir()) == []
