"""Notes of a rehearsal's processes, which a process that is killed leaves too."""

from __future__ import annotations

import json
import os
from pathlib import Path

from viaduct.rehearsal.progress import Progress, gather_notes, read_last_activity, read_notes

PID = str(os.getpid())


def test_a_process_without_a_note_leaves_no_file(tmp_path: Path) -> None:
    Progress(str(tmp_path), "steps")
    assert list(tmp_path.iterdir()) == []
    assert read_notes(tmp_path, "steps") == {}
    assert gather_notes(tmp_path) == []


def test_a_note_that_is_not_written_yet_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "alive").mkdir()
    (tmp_path / "alive" / "7.json").touch()
    assert read_notes(tmp_path, "alive") == {}


def test_a_shorter_note_replaces_a_longer_one_completely(tmp_path: Path) -> None:
    progress = Progress(str(tmp_path), "steps")
    progress.note(rank=0, steps=1000000)
    progress.note(rank=0, steps=1)
    assert read_notes(tmp_path, "steps") == {PID: {"rank": 0, "steps": 1}}


def test_how_a_process_ended_counts_more_than_that_it_was_alive(tmp_path: Path) -> None:
    for folder, pid, note in (
        ("alive", 1, {"rank": 0, "steps": 4}),
        ("alive", 2, {"rank": 1, "steps": 4}),
        ("ended", 1, {"rank": 0, "steps": 5, "code": 3}),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{pid}.json").write_text(json.dumps(note))
    notes = {note["rank"]: (note["code"], note["steps"]) for note in gather_notes(tmp_path)}
    assert notes == {0: (3, 5), 1: (None, 4)}


def test_the_last_activity_of_a_rank_is_the_time_of_its_last_note(tmp_path: Path) -> None:
    for seconds, (folder, rank) in enumerate((("alive", 0), ("alive", 1), ("ended", 1)), start=1):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / f"{rank}.json"
        path.write_text(json.dumps({"rank": rank}))
        os.utime(path, (seconds, seconds))
    assert read_last_activity(tmp_path) == {0: 1, 1: 3}
