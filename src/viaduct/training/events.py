"""Writes TensorBoard event files without TensorBoard, by encoding the fields of their protobuf messages.

A number that is the first argument of an `encode_` function is the field's number in TensorFlow's event.proto,
summary.proto or graph.proto.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from viaduct.data.tfrecord import frame_record
from viaduct.protobuf_wire import encode_bytes, encode_number, pack_varint

RGB = 3  # the value of Summary.Image.colorspace for images of three channels
PRODUCER = 22  # version of the GraphDef format in which graphs are written
SESSION_START = 1  # the value START of SessionLog.status


class EventFile:
    """Appends events to RUN/events.out.tfevents.…"""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin a new file in `folder`; `step` is the step that the run has reached."""
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        self._write(encode_text(3, "brain.Event:2"))
        # This makes TensorBoard drop events of later steps from earlier files: a resumed run takes these steps again.
        self._write(encode_number(2, step + 1) + encode_bytes(7, encode_number(1, SESSION_START)))

    def write_scalars(self, step: int, values: dict[str, float]) -> None:
        parts = (encode_bytes(1, encode_text(1, tag) + encode_float(2, value)) for tag, value in values.items())
        summary = b"".join(parts)
        self._write(encode_number(2, step) + encode_bytes(5, summary))

    def write_image(self, step: int, tag: str, height: int, width: int, encoded: bytes) -> None:
        """Write an image that is encoded already, as PNG or JPEG."""
        sizes = encode_number(1, height) + encode_number(2, width)
        image = sizes + encode_number(3, RGB) + encode_bytes(4, encoded)
        value = encode_text(1, tag) + encode_bytes(4, image)
        self._write(encode_number(2, step) + encode_bytes(5, encode_bytes(1, value)))

    def write_histograms(self, step: int, by_tag: dict[str, dict[str, Any]]) -> None:
        """Write histograms by their tags; each has min, max, num, sum, sum_squares, and counts in equally wide bins."""
        values = (
            encode_text(1, tag) + encode_bytes(5, build_histogram_message(fields)) for tag, fields in by_tag.items()
        )
        summary = b"".join(encode_bytes(1, value) for value in values)
        self._write(encode_number(2, step) + encode_bytes(5, summary))

    def write_graph(self, nodes: list[tuple[str, str, list[str]]]) -> None:
        """Write the network's graph: name, operation and inputs of each node."""
        encoded = b""
        for name, operation, inputs in nodes:
            sources = b"".join(encode_text(3, source) for source in inputs)
            encoded += encode_bytes(1, encode_text(1, name) + encode_text(2, operation) + sources)
        self._write(encode_bytes(4, encoded + encode_bytes(4, encode_number(1, PRODUCER))))

    def _write(self, fields: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(frame_record(encode_double(1, time.time()) + fields))


def encode_float(field: int, value: float) -> bytes:
    return pack_varint(field << 3 | 5) + struct.pack("<f", value)


def encode_double(field: int, value: float) -> bytes:
    return pack_varint(field << 3 | 1) + struct.pack("<d", value)


def build_histogram_message(values: dict[str, Any]) -> bytes:
    """Return a histogram as TensorFlow's HistogramProto, which has the upper edge and the count of each bin."""
    counts, low, high = values["counts"], values["min"], values["max"]
    width = (high - low) / len(counts)
    edges = [low + width * (number + 1) for number in range(len(counts))]
    edges[-1] = high
    numbers = (low, high, values["num"], values["sum"], values["sum_squares"])
    totals = b"".join(encode_double(field, float(value)) for field, value in enumerate(numbers, start=1))
    # An empty bin that ends at the minimum comes first, because readers let the first bin begin at minus infinity.
    bins = struct.Struct(f"<{len(counts) + 1}d")
    return totals + encode_bytes(6, bins.pack(low, *edges)) + encode_bytes(7, bins.pack(0.0, *map(float, counts)))


def encode_text(field: int, value: str) -> bytes:
    return encode_bytes(field, value.encode())
