"""Access log: a JSON line for each request, written by a separate thread, so that slow output delays no response."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timezone
from typing import Any, TextIO

MAX_LINES = 20_000  # most lines that wait to be written; further ones are dropped and counted


class AccessLog:
    """Writer of lines to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lines: list[str] = []
        self.dropped = 0
        self.changed = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self._write, name="access log", daemon=True)
        self.thread.start()

    def add(self, **fields: Any) -> None:
        """Add a line with these fields."""
        stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        line = json.dumps({"time": stamp, **fields})  # ASCII, so clients cannot inject escape sequences
        with self.changed:
            if len(self.lines) >= MAX_LINES:
                self.dropped += 1
                return
            if self.dropped:
                self.lines.append(json.dumps({"time": stamp, "dropped_lines": self.dropped}))
                self.dropped = 0
            self.lines.append(line)
            self.changed.notify()

    def close(self) -> None:
        """Write the remaining lines, for at most two seconds."""
        with self.changed:
            self.ended = True
            self.changed.notify()
        self.thread.join(2.0)

    def _write(self) -> None:
        """Write lines until the log is closed; runs in the thread."""
        while True:
            with self.changed:
                while not self.lines and not self.ended:
                    self.changed.wait()
                lines, self.lines = self.lines, []
                if not lines:
                    return
            try:
                self.stream.write("".join(f"{line}\n" for line in lines))
                self.stream.flush()
            except (OSError, ValueError):  # such as a full disk: the server continues
                with self.changed:
                    self.dropped += len(lines)
            time.sleep(0.05)  # collect more lines for the next write
