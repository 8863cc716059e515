"""Write the trace of a profile as trace.json, or as trace.json.gz if it is large, and read it back.

Perfetto opens both. chrome://tracing fails from about 0.5 GB, Perfetto from about 2 GB.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from viaduct.atomic_files import replace_file
from viaduct.errors import BadData
from viaduct.run_files import finite_or_null

from .events import RawEvent
from .record import Profile
from .trace import DRAWN_PIDS, build_trace

PLAIN_TRACE, PACKED_TRACE = "trace.json", "trace.json.gz"
PACK_FROM_BYTES = 20_000_000
WARN_FROM_BYTES = 200_000_000


def write_trace(profile: Profile, folder: Path, events: Sequence[RawEvent] = ()) -> tuple[Path, str]:
    """Write the trace, and return its path and a sentence, which is "" unless the trace is too large for some viewers.

    `events` are the recorded events; `build_trace` draws the others from the profile.
    """
    trace = build_trace(profile, events)
    is_large = any(size > PACK_FROM_BYTES for size in accumulate(map(len, encode_trace(trace))))
    path, stale = folder / PLAIN_TRACE, folder / PACKED_TRACE
    if is_large:
        path, stale = stale, path
    size = 0  # of the unpacked text
    with replace_file(path, durable=False) as file:
        output = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, mtime=0) if is_large else file
        for piece in encode_trace(trace):
            output.write(piece)
            size += len(piece)
        if is_large:
            output.close()
    stale.unlink(missing_ok=True)
    if size <= WARN_FROM_BYTES:
        return path, ""
    return path, (
        f"{path.name} has {size / 1e6:,.0f} MB when unpacked: chrome://tracing fails from about 500 MB, Perfetto from "
        "about 2 GB. Record fewer steps for a smaller trace."
    )


def encode_trace(trace: dict[str, Any]) -> Iterator[bytes]:
    """Yield the JSON text, with one event per line."""
    head = {name: value for name, value in trace.items() if name != "traceEvents"}
    yield json.dumps(head, allow_nan=False)[:-1].encode() + b', "traceEvents": [\n'
    for number, event in enumerate(trace["traceEvents"]):
        yield (b",\n" if number else b"") + encode_event(event)
    yield b"\n]}\n"


def encode_event(event: RawEvent) -> bytes:
    """Return an event as JSON; NaN and infinity become null."""
    try:
        return json.dumps(event, allow_nan=False, separators=(",", ":"), default=str).encode()
    except ValueError:
        return json.dumps(finite_or_null(event), allow_nan=False, separators=(",", ":"), default=str).encode()


def read_events(folder: Path) -> list[RawEvent]:
    """Return the recorded events of a trace of `write_trace`, without those that `build_trace` drew."""
    path = next((folder / name for name in (PACKED_TRACE, PLAIN_TRACE) if (folder / name).is_file()), None)
    if path is None:
        return []
    try:
        content = path.read_bytes()
        trace = json.loads(gzip.decompress(content) if path.name == PACKED_TRACE else content)
        drawn = set(trace["otherData"][DRAWN_PIDS])
        return [event for event in trace["traceEvents"] if event["pid"] not in drawn]
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadData(f"{path} is damaged: {type(error).__name__}, {error}.", "Profile that rank again.") from None
