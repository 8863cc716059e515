"""Read the bodies of requests within limits of size, time and memory; nothing is written to the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request

from viaduct.handover.serving.limits import Limits, Refusal


class UploadMemory:
    """Counts the bytes of all requests' bodies that are in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.upload_memory
        self.used = 0

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Count the body of one request in `used` until the end of the `with` block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.used -= reservation.size


class Reservation:
    """Number of bytes of one request's body in memory."""

    def __init__(self, memory: UploadMemory) -> None:
        self.memory = memory
        self.size = 0

    def add(self, size: int) -> None:
        """Count more bytes; raise Refusal if all bodies together then exceed the limit."""
        if self.memory.used + size > self.memory.limit:
            raise Refusal(503, "too many uploads at once.", retry_after=1)
        self.memory.used += size
        self.size += size


async def read_body(request: Request, limits: Limits, reservation: Reservation) -> bytes:
    """Read the body; raise Refusal as soon as it is too large or too slow."""
    refuse_encoding(request)
    declared = request.headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or int(declared[:20]) > limits.max_bytes:
        raise make_size_refusal(limits)
    chunks: list[bytes] = []
    size, allowed = 0, limits.upload_grace
    start = anyio.current_time()
    with anyio.move_on_after(allowed) as scope:
        more = True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size > limits.max_bytes:
                raise make_size_refusal(limits)
            if chunk:
                reservation.add(len(chunk))
                chunks.append(chunk)
            allowed = limits.upload_grace + size / limits.upload_rate
            scope.deadline = start + allowed
    if scope.cancelled_caught:
        raise Refusal(408, f"{size:,} bytes of the body came in {allowed:.0f} s: the upload is too slow.")
    request.state.body_read = True
    return b"".join(chunks)


def refuse_encoding(request: Request) -> None:
    """Refuse compressed bodies, because their size is only known after decompression."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refusal(415, f"Content-Encoding {encoding[:40]!r}: the body must not be compressed.")


def make_size_refusal(limits: Limits) -> Refusal:
    """Return the refusal of a body that is too large."""
    return Refusal(413, f"the body has more than {limits.max_bytes:,} bytes.")


async def discard_body(request: Request, seconds: float, max_bytes: int) -> None:
    """Read and discard the rest of a body, for at most `seconds` and until about `max_bytes`."""
    size, more = 0, True
    with anyio.move_on_after(seconds):
        while more and size < max_bytes:
            message = await request.receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)  # missing after a disconnect


def find_file_part(body: bytes, content_type: str) -> bytes:
    """Return the content of the part called `file` of a multipart form; raise Refusal unless there is exactly one."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import Field, FormParser, parse_options_header

    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary or len(boundary) > 200:
        raise Refusal(400, "the multipart form has no boundary.")
    parts: list[Any] = []  # a `File`, or for a part without a file name a `Field`
    is_complete = False

    def note_end() -> None:
        nonlocal is_complete
        is_complete = True

    in_memory = {"MAX_MEMORY_FILE_SIZE": len(body)}
    try:
        parser = FormParser(
            "multipart/form-data", parts.append, parts.append, note_end, boundary=boundary, config=in_memory
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"the multipart form cannot be parsed: {error}.") from None
    if not is_complete:
        raise Refusal(400, "the multipart form is cut short.")
    files = [part for part in parts if part.field_name == b"file"]
    if len(files) > 1:
        raise Refusal(400, f"the multipart form has {len(files):,} parts called 'file'; send one image a request.")
    if not files:
        raise Refusal(400, "the multipart form has no part called 'file'.")
    content: bytes = files[0].value or b"" if isinstance(files[0], Field) else files[0].file_object.getvalue()
    return content
