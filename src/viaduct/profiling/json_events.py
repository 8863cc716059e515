"""Events of a Chrome trace, read one by one, as far as the file goes.

    trace = EventFile(Path("worker.pt.trace.json.gz"), notes)
    for event in trace:
        …
    trace.header["distributedInfo"]

Kineto writes {"traceEvents": [...]} with facts before and after the events, msprof and torch_npu write a plain list;
both may be packed with gzip. Of a file that was cut off the whole events are read, with a note. Times that are texts,
as in some releases of torch_npu, become numbers. `header` has the facts before the events.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from viaduct.path_errors import refuse_special_file

Event = dict[str, Any]
CHUNK = 1 << 20  # bytes read at a time
GZIP = b"\x1f\x8b"
LONGEST_EVENT = 8 << 20  # characters; a longer one is taken for damage
LARGEST_HEADER = 4 << 20  # characters
MOST_EVENTS = 4_000_000  # read from one file
LIST_START = re.compile(r'"traceEvents"\s*:\s*\[')
PADDING = re.compile(r"[\s,]*")  # between two events


class EventFile:
    """A trace file; iterating reads it once."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path = path
        self.notes = notes
        self.header: dict[str, Any] = {}
        self.count = 0
        self.malformed = 0
        self.is_whole = False  # True once the end of the list was reached

    def __iter__(self) -> Iterator[Event]:
        refuse_special_file(self.path)
        for event in self.parse_events(read_text(self.path)):
            if not isinstance(event, dict):
                continue
            self.count += 1
            if self.count > MOST_EVENTS:
                self.notes.append(f"{self.path.name}: only the first {MOST_EVENTS:,} events were read.")
                return
            convert_times(event)
            if has_valid_fields(event):
                yield event
            else:
                self.malformed += 1
        if self.malformed:
            self.notes.append(f"{self.path.name}: {self.malformed:,} events of another form were left out.")
        if not self.is_whole:
            what = f"it is cut off or damaged after {self.count:,} events" if self.count else "it holds no events"
            self.notes.append(f"{self.path.name}: {what}; what came before was read.")

    def parse_events(self, text: Iterator[str]) -> Iterator[Any]:
        """Yield the elements of the list of events until it ends or the file does."""
        reader = TextWindow(text)
        if not self.find_list(reader):
            return
        decoder = json.JSONDecoder()
        while True:
            position = reader.skip(PADDING)
            if position is None:
                return
            if reader.buffer[position] == "]":
                self.is_whole = True
                return
            parsed = reader.decode(decoder, position)
            if parsed is None:
                return
            yield parsed[0]

    def find_list(self, reader: TextWindow) -> bool:
        """Go to the first event, and read the header on the way; return False if there is no list of events."""
        start = reader.skip(PADDING)
        if start is None:
            return False
        if reader.buffer[start] == "[":
            reader.position = start + 1
            return True
        while (match := LIST_START.search(reader.buffer)) is None:
            if len(reader.buffer) > LARGEST_HEADER or not reader.read_more():
                return False
        self.header = parse_header(reader.buffer[: match.start()])
        reader.position = match.end()
        return True


class TextWindow:
    """Part of a long text that moves on as it is parsed; `position` is the first character that is not parsed yet."""

    def __init__(self, text: Iterator[str]) -> None:
        self.text = text
        self.buffer = ""
        self.position = 0

    def read_more(self) -> bool:
        """Append a chunk and drop what has been parsed; return False at the end of the text."""
        chunk = next(self.text, "")
        self.buffer = self.buffer[self.position :] + chunk
        self.position = 0
        return bool(chunk)

    def skip(self, pattern: re.Pattern[str]) -> int | None:
        """Return the position after what the pattern matches; None at the end of the text."""
        while True:
            match = pattern.match(self.buffer, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.buffer):
                return self.position
            if not self.read_more():
                return None

    def decode(self, decoder: json.JSONDecoder, position: int) -> tuple[Any] | None:
        """Return the JSON value at a position, in a tuple as it may be null; None if it is cut off or damaged."""
        self.position = position
        while True:
            try:
                value, end = decoder.raw_decode(self.buffer, self.position)
            except RecursionError:
                return None
            except ValueError:
                if len(self.buffer) - self.position > LONGEST_EVENT or not self.read_more():
                    return None
                continue
            if end == len(self.buffer) and not isinstance(value, dict) and self.read_more():
                continue  # a number may go on in the next chunk
            self.position = end
            return (value,)


def read_text(path: Path) -> Iterator[str]:
    """Yield the text of a file, unpacked if it is an archive, in chunks."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP
        file.seek(0)
        chunks = iter(lambda: file.read(CHUNK), b"")
        for chunk in unpack(chunks) if is_packed else chunks:
            text = decoder.decode(chunk)
            if text:
                yield text


def unpack(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield what a gzip archive holds until it ends or breaks."""
    archive = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        while chunk:
            try:
                unpacked = archive.decompress(chunk, CHUNK)
            except zlib.error:
                return
            yield unpacked
            chunk = archive.unconsumed_tail
            if archive.eof:
                chunk, archive = archive.unused_data, zlib.decompressobj(wbits=31)


def parse_header(text: str) -> dict[str, Any]:
    """Return the facts in the text before the events, such as '{"schemaVersion": 1, '; {} where it is damaged."""
    try:
        header = json.loads(text.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def has_valid_fields(event: Event) -> bool:
    """Return True if the fields have the types of the format and the duration is not negative; set missing args."""
    texts = all(isinstance(event.get(name, ""), str) for name in ("ph", "cat", "name"))
    numbers = all(isinstance(event.get(name), int | float | str | None) for name in ("pid", "tid", "id"))
    return texts and numbers and isinstance(event.setdefault("args", {}), dict) and event.get("dur", 0.0) >= 0


def convert_times(event: Event) -> None:
    """Convert times to numbers, and remove those that are none."""
    for name in ("ts", "dur"):
        if name in event and (number := to_number(event.pop(name))) is not None:
            event[name] = number


def to_number(value: Any) -> float | None:
    """Return a number or a text as a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
