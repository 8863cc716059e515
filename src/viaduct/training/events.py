"""TensorBoard event files, written without TensorBoard: scalars are four protobuf fields."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from viaduct.data.example import field as message
from viaduct.data.example import pack_varint
from viaduct.data.tfrecord import frame

SESSION_START = 1  # SessionLog.START: TensorBoard drops what it knew of later steps


class EventFile:
    """Appends events to RUN/events.out.tfevents.…; opened at a step, so that a resumed run shows no step twice."""

    def __init__(self, folder: Path, step: int) -> None:
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        self._write(text(3, "brain.Event:2"))
        # TensorBoard drops the step of this event too, and `step` itself will not be trained again.
        self._write(varint(2, step + 1) + message(7, varint(1, SESSION_START)))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        summary = b"".join(message(1, text(1, tag) + fixed32(2, value)) for tag, value in values.items())
        self._write(varint(2, step) + message(5, summary))

    def _write(self, fields: bytes) -> None:
        wall_time = b"\x09" + struct.pack("<d", time.time())
        with self._path.open("ab") as file:
            file.write(frame(wall_time + fields))


def varint(field: int, value: int) -> bytes:
    return pack_varint(field << 3) + pack_varint(value)


def fixed32(field: int, value: float) -> bytes:
    return pack_varint(field << 3 | 5) + struct.pack("<f", value)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())
