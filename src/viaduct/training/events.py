"""Writes TensorBoard event files without TensorBoard, field by field of their protobuf messages.

The functions below `EventFile` encode one field each; the numbers of fields are those of event.proto, summary.proto and
graph.proto in TensorFlow.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from viaduct.data.example import encode_field as message
from viaduct.data.example import pack_varint
from viaduct.data.tfrecord import frame

RGB = 3  # colour channels of an image
PRODUCER = 22  # version of TensorFlow's GraphDef format
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

    def image(self, step: int, tag: str, height: int, width: int, encoded: bytes) -> None:
        """Write an image that is encoded already, as PNG or JPEG."""
        image = varint(1, height) + varint(2, width) + varint(3, RGB) + message(4, encoded)
        self._write(varint(2, step) + message(5, message(1, text(1, tag) + message(4, image))))

    def histograms(self, step: int, by_tag: dict[str, dict[str, Any]]) -> None:
        """Write histograms: of each min, max, num, sum, sum_squares and counts in bins of equal width."""
        values = b"".join(message(1, text(1, tag) + message(5, histogram(by_tag[tag]))) for tag in by_tag)
        self._write(varint(2, step) + message(5, values))

    def graph(self, nodes: list[tuple[str, str, list[str]]]) -> None:
        """Write the network's graph: name, operation and inputs of each node."""
        encoded = b"".join(
            message(1, text(1, name) + text(2, operation) + b"".join(text(3, source) for source in inputs))
            for name, operation, inputs in nodes
        )
        self._write(message(4, encoded + message(4, varint(1, PRODUCER))))

    def _write(self, fields: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(frame(double(1, time.time()) + fields))


def varint(field: int, value: int) -> bytes:
    return pack_varint(field << 3) + pack_varint(value)


def fixed32(field: int, value: float) -> bytes:
    return pack_varint(field << 3 | 5) + struct.pack("<f", value)


def double(field: int, value: float) -> bytes:
    return pack_varint(field << 3 | 1) + struct.pack("<d", value)


def histogram(values: dict[str, Any]) -> bytes:
    """Return TensorFlow's HistogramProto: each bin has a count and its upper edge; the first begins at the minimum."""
    counts, low, high = values["counts"], values["min"], values["max"]
    width = (high - low) / len(counts)
    edges = [low + width * (number + 1) for number in range(len(counts))]
    edges[-1] = high
    numbers = (low, high, values["num"], values["sum"], values["sum_squares"])
    head = b"".join(double(field, float(value)) for field, value in enumerate(numbers, start=1))
    # Readers take the lower edge of the first bin for minus infinity: begin with an empty bin below the minimum.
    repeated = struct.Struct(f"<{len(counts) + 1}d")
    return head + message(6, repeated.pack(low, *edges)) + message(7, repeated.pack(0.0, *map(float, counts)))


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())
