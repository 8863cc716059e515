"""Events of a Chrome trace, read one by one, also from a truncated file.

    trace = EventFile(Path("worker.pt.trace.json.gz"), notes)
    for event in trace:
        …
    trace.header["distributedInfo"]

Kineto writes {"traceEvents": [...]} with facts before and after the events, msprof and torch_npu write a plain list;
both may be compressed with gzip. The complete events of a truncated file are read, and a note is added. Times that are
strings, as in some releases of torch_npu, become numbers. `header` has the facts before the events.
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
from viaduct.profiling.events import RawEvent

CHUNK = 1 << 20  # bytes read at a time
GZIP = b"\x1f\x8b"
LONGEST_EVENT = 8 << 20  # characters; a longer event counts as damage
MAX_HEADER = 4 << 20  # characters
MAX_EVENTS = 4_000_000  # read from one file
LIST_START = re.compile(r'"traceEvents"\s*:\s*\[')
NEXT = re.compile(r"[^\s,]")  # spaces and commas are between two events
DECODER = json.JSONDecoder()


class EventFile:
    """A trace file; iterating over it reads the file once."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path = path
        self.notes = notes
        self.header: dict[str, Any] = {}
        self.count = 0  # number of events that were read
        self.malformed = 0  # number of events that were left out
        self.is_complete = False  # True once the end of the list was reached

    def __iter__(self) -> Iterator[RawEvent]:
        refuse_special_file(self.path)
        for event in self.parse_events(read_text(self.path)):
            if not isinstance(event, dict):
                continue
            self.count += 1
            if self.count > MAX_EVENTS:
                self.notes.append(f"{self.path.name}: only the first {MAX_EVENTS:,} events were read.")
                return
            normalise_fields(event)
            if has_valid_fields(event):
                yield event
            else:
                self.malformed += 1
        if self.malformed:
            self.notes.append(f"{self.path.name}: {self.malformed:,} malformed events were left out.")
        if not self.is_complete:
            damage = f"it is truncated or damaged after {self.count:,} events" if self.count else "it holds no events"
            self.notes.append(f"{self.path.name}: {damage}.")

    def parse_events(self, text: Iterator[str]) -> Iterator[Any]:
        """Yield the elements of the list of events until the list or the file ends, or up to a damaged one."""
        reader = TextWindow(text)
        if not self.find_list(reader):
            return
        while reader.find_next() not in ("]", ""):
            try:
                yield reader.decode()
            except ValueError:
                return
        self.is_complete = reader.find_next() == "]"

    def find_list(self, reader: TextWindow) -> bool:
        """Read the header and move to the first event; return False if there is no list of events."""
        if reader.find_next() == "[":
            reader.position += 1
            return True
        while (match := LIST_START.search(reader.buffer)) is None:
            if len(reader.buffer) > MAX_HEADER or not reader.read_more():
                return False
        self.header = parse_header(reader.buffer[: match.start()])
        reader.position = match.end()
        return True


class TextWindow:
    """Buffered part of a long text; `position` is the first character that has not been parsed."""

    def __init__(self, text: Iterator[str]) -> None:
        self.text = text
        self.buffer = ""
        self.position = 0

    def read_more(self) -> bool:
        """Append a chunk and drop the parsed text; return False at the end of the text."""
        chunk = next(self.text, "")
        self.buffer = self.buffer[self.position :] + chunk
        self.position = 0
        return bool(chunk)

    def find_next(self) -> str:
        """Move past spaces and commas, and return the character after them; "" at the end of the text."""
        while (match := NEXT.search(self.buffer, self.position)) is None:
            self.position = len(self.buffer)
            if not self.read_more():
                return ""
        self.position = match.start()
        return match[0]

    def decode(self) -> Any:
        """Return the JSON value at the position and move past it; raise ValueError if it is truncated or damaged."""
        while True:
            try:
                value, end = DECODER.raw_decode(self.buffer, self.position)
            except RecursionError:
                raise ValueError("the value is nested too deeply") from None
            except ValueError:
                if len(self.buffer) - self.position > LONGEST_EVENT or not self.read_more():
                    raise
                continue
            if end == len(self.buffer) and not isinstance(value, dict) and self.read_more():
                continue  # a number may continue in the next chunk
            self.position = end
            return value


def read_text(path: Path) -> Iterator[str]:
    """Yield the text of a file in chunks, decompressed if it is a gzip file."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as file:
        is_compressed = file.read(2) == GZIP
        file.seek(0)
        chunks = iter(lambda: file.read(CHUNK), b"")
        for chunk in decompress(chunks) if is_compressed else chunks:
            text = decoder.decode(chunk)
            if text:
                yield text


def decompress(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed content of a gzip file, up to damage."""
    archive = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        while chunk:
            try:
                content = archive.decompress(chunk, CHUNK)
            except zlib.error:
                return
            yield content
            chunk = archive.unconsumed_tail
            if archive.eof:
                chunk, archive = archive.unused_data, zlib.decompressobj(wbits=31)


def parse_header(text: str) -> dict[str, Any]:
    """Return the facts in the text before the events, such as '{"schemaVersion": 1, '; {} if the text is damaged."""
    try:
        header = json.loads(text.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def has_valid_fields(event: RawEvent) -> bool:
    """Return True if the fields have the types of the format and the duration is not negative."""
    texts = all(isinstance(event.get(name, ""), str) for name in ("ph", "cat", "name"))
    ids = all(isinstance(event.get(name), int | float | str | None) for name in ("pid", "tid", "id"))
    return texts and ids and isinstance(event["args"], dict) and event.get("dur", 0.0) >= 0


def normalise_fields(event: RawEvent) -> None:
    """Set missing arguments to {}, convert times to numbers, and remove times that are not numbers."""
    event.setdefault("args", {})
    for name in ("ts", "dur"):
        if name in event and (number := to_number(event.pop(name))) is not None:
            event[name] = number


def to_number(value: Any) -> float | None:
    """Return a number or a string as a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
