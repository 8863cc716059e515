"""Progress of a rehearsal's processes, in files of its record folder that are still there when a process was killed.

steps/PID.json     {"rank": 0, "steps": 12}           after every step; of a TensorFlow script only at the end
alive/PID.json     {"rank": 0, "steps": 12, "seconds": 3.1, "peak_bytes": …}   ten times a second
ended/PID.json     written by `child.py` at the end, with the exit code; counts instead of the note in alive/
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTE_BYTES = 160  # a note is padded to this size: one write replaces the old note, and readers never see a mix


class Progress:
    """The progress file of this process in one folder of the record; the first `note` creates it."""

    def __init__(self, record: str, folder: str) -> None:
        self.folder = Path(record) / folder
        self._file, self._pid = -1, 0

    def note(self, **values: Any) -> None:
        """Replace the progress file of this process."""
        if self._pid != os.getpid():  # the first note of this process, which may be a fork
            self.folder.mkdir(exist_ok=True)
            self._pid = os.getpid()
            self._file = os.open(self.folder / f"{self._pid}.json", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._file, json.dumps(values).ljust(NOTE_BYTES).encode(), 0)


def read_notes(record: Path, folder: str) -> dict[str, dict[str, Any]]:
    """Return the notes in one folder of the record, by process number."""
    texts = {path.stem: path.read_text() for path in sorted((record / folder).glob("*.json"))}
    return {pid: json.loads(text) for pid, text in texts.items() if text.strip()}


def gather_notes(record: Path) -> list[Mapping[str, Any]]:
    """Return the last note of each process that viaduct started: from `ended`, else from `alive`, with code None."""
    alive = {
        pid: {"code": None, "stopped": False, "bound": "", "failure": "", **note}
        for pid, note in read_notes(record, "alive").items()
    }
    return [*(alive | read_notes(record, "ended")).values()]


def read_last_activity(record: Path) -> dict[int, float]:
    """Return the time of each rank's last note."""
    times: dict[int, float] = {}
    for folder in ("alive", "ended"):  # a note in `ended` is later than the one in `alive`
        for pid, note in read_notes(record, folder).items():
            times[note["rank"]] = (record / folder / f"{pid}.json").stat().st_mtime
    return times
