"""Records stdout and log messages of a script, to compare the original and the migrated project line by line.

The file printed/PID.jsonl of the rehearsal's record folder has [rank, text] for each write to stdout and each log
message of the user's files, in order, up to MAX_CHARACTERS.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.plan import Plan, current_rank
from viaduct.rehearsal.wrapping import wrap

PRINTED_FOLDER = "printed"
MAX_CHARACTERS = 8 << 20  # recorded for one process


class OutputRecorder:
    """Records the prints and log messages of this process, which are passed on unchanged."""

    def __init__(self, record: str) -> None:
        self._folder = Path(record) / PRINTED_FOLDER
        self._recorded = 0  # characters
        self._is_recording = False  # a text is being written; output of this process meanwhile is not recorded

    def record(self, text: str) -> None:
        """Append a text to this process's file."""
        if self._is_recording or not text or self._recorded > MAX_CHARACTERS:
            return
        self._is_recording = True
        try:
            self._recorded += len(text)
            self._folder.mkdir(exist_ok=True)
            with open(self._folder / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps([current_rank(), text]) + "\n")
        finally:
            self._is_recording = False

    def watch_stdout(self) -> None:
        with suppress(AttributeError):  # a stream of the user's own whose attributes cannot be set

            @wrap(sys.stdout, "write")
            def write(plain: Any, text: str) -> Any:
                self.record(text)
                return plain(text)

    def watch_logging(self) -> None:
        """Wrap the handling of log records from the user's files."""

        @wrap(logging.Logger, "handle")
        def handle(plain: Any, logger: logging.Logger, entry: logging.LogRecord) -> None:
            if limits.is_users_file(entry.pathname):
                self.record(f"{entry.getMessage()}\n")
            plain(logger, entry)


def install(plan: Plan) -> None:
    """Record the output of this process if the original and the migrated project are compared."""
    if not plan.source_tree:
        return
    recorder = OutputRecorder(plan.record_folder)
    recorder.watch_stdout()
    recorder.watch_logging()


def read_printed_lines(record: str) -> dict[int, list[str]]:
    """Return the non-empty lines of each rank, from its process that printed the most lines."""
    longest: dict[int, list[str]] = {}
    for path in sorted((Path(record) / PRINTED_FOLDER).glob("*.jsonl")):
        by_rank: dict[int, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the last line is incomplete if the process was killed while it printed
                number, text = json.loads(line)
                by_rank[number] = by_rank.get(number, "") + text
        for number, text in by_rank.items():
            lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
            if len(lines) > len(longest.get(number, [])):
                longest[number] = lines
    return longest
