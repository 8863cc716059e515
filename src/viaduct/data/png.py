"""PNG as TensorFlow decodes it: the rare image that calls itself JPEG, and folders of PNGs.

    decode(data)        uint8 HxWx3, as `tf.io.decode_png(data, channels=3)` has it
    dimensions(data)    (height, width), from the header alone

Every colour type, depth and interlacing of the standard is read. Alpha and transparency are dropped, of 16 bits the
upper eight are kept, gamma is ignored: that is what TensorFlow does.

Pillow restores the pixels where it is installed and samples have at most 8 bits (png_pillow.py); checksums, size and
decompression stay here. Else numpy does. A row is stored as differences from its neighbours above
and to the left, so pixels must be restored in order; along a falling diagonal none depends on another, and numpy
restores it at once: 57 ms for 500x375 and 3.7 s for 4000x3000; through Pillow 5.5 ms and 0.53 s.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.png_pillow import restore_samples
from viaduct.errors import BadData, TooLarge

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type: grey, RGB, palette, grey and alpha, RGB and alpha
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PALETTE = 3
MOST_BYTES = 1 << 29  # of decoded pixels; TensorFlow's own limit
MOST_PIXELS = MOST_BYTES // 8  # a pixel has up to eight bytes
# Bytes of pixels that any PNG may unfold to; a larger one, so many times its size.
UNFOLDED, UNFOLDING = 1 << 25, 200
# Left, top, step across and step down of the seven images that an interlaced one consists of.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


class Header(NamedTuple):
    """Fields of the IHDR chunk."""

    width: int
    height: int
    depth: int
    colour_type: int
    compression: int
    filtering: int
    interlaced: int

    @property
    def pixel_bits(self) -> int:
        return self.depth * CHANNELS[self.colour_type]

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row of so many pixels."""
        return (width * self.pixel_bits + 7) // 8


def is_png(data: bytes | bytearray | memoryview) -> bool:
    return data[:8] == SIGNATURE


def dimensions(data: bytes) -> tuple[int, int]:
    """Return height and width from the header."""
    header = read_header(dict(chunks(data[:33])))
    return header.height, header.width


def decode(data: bytes) -> Bytes:
    """Decode to height x width x 3; raise BadData, with the reason, for anything that is not a complete PNG."""
    found, parts = dict[bytes, bytes](), list[bytes]()
    for kind, body in chunks(data):
        if kind == b"IDAT":
            parts.append(body)
        else:
            found[kind] = body
    header = read_header(found)
    if b"IEND" not in found:
        raise BadData("the PNG is cut short: it has no end.")
    compressed, palette = b"".join(parts), found.get(b"PLTE", b"")
    size = sum(rows * (1 + header.row_bytes(columns)) for columns, rows in sizes(header))
    lines = inflate(compressed, size)
    samples = restore_samples(header, lines)
    if samples is None:
        return to_rgb(header, assemble(header, lines), palette)
    return look_up(samples, palette) if header.colour_type == PALETTE else samples


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the content of every chunk, checksums verified."""
    position = len(SIGNATURE)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        body = bytes(data[position + 8 : position + 8 + length])
        critical = kind[:1].isupper()
        if len(body) < length:
            raise BadData(
                f"the PNG is cut short: {length} bytes of {kind.decode('latin-1')} promised, {len(body)} found."
            )
        if critical and bytes(data[position + 8 + length : position + 12 + length]) != checksum(kind, body):
            raise BadData(f"the PNG is damaged: the checksum of {kind.decode('latin-1')} at byte {position} is wrong.")
        yield kind, body
        if kind == b"IEND":
            return
        position += 12 + length


def checksum(kind: bytes, body: bytes) -> bytes:
    """Return the checksum of a chunk."""
    return struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def read_header(found: dict[bytes, bytes]) -> Header:
    body = found.get(b"IHDR", b"")
    if len(body) != 13:
        raise BadData("the PNG is damaged: it has no header.")
    header = Header(*struct.unpack(">IIBBBBB", body))
    if header.depth not in DEPTHS.get(header.colour_type, ()):
        raise BadData(f"the PNG is damaged: colour type {header.colour_type} with {header.depth} bits does not exist.")
    if (header.compression, header.filtering) != (0, 0) or header.interlaced > 1:
        raise BadData("the PNG is damaged: its header names an unknown compression, filter or interlacing.")
    if header.width == 0 or header.height == 0:
        raise BadData(f"the PNG is damaged: by its header it has {header.width} x {header.height} pixels.")
    if header.width * header.height > MOST_PIXELS:
        raise TooLarge(f"the PNG has {header.width:,} x {header.height:,} pixels; at most {MOST_PIXELS:,} are decoded.")
    return header


def sizes(header: Header) -> list[tuple[int, int]]:
    """Return columns and rows of each image in the stream: one, or up to seven when interlaced."""
    if not header.interlaced:
        return [(header.width, header.height)]
    spans = [(-(-(header.width - left) // dx), -(-(header.height - top) // dy)) for left, top, dx, dy in ADAM7]
    return [(columns, rows) if columns > 0 and rows > 0 else (0, 0) for columns, rows in spans]


def inflate(compressed: bytes, size: int) -> Bytes:
    """Decompress the pixels; refuse a size beyond all proportion."""
    if size > max(UNFOLDED, UNFOLDING * len(compressed)):
        raise TooLarge(
            f"the PNG unfolds from {len(compressed):,} to {size:,} bytes of pixels; beyond {UNFOLDED:,} bytes, at most "
            f"{UNFOLDING} times the compressed size is decoded."
        )
    try:
        stream = zlib.decompressobj().decompress(compressed, size)
    except zlib.error as error:
        raise BadData(f"the PNG is damaged: {error}.") from None
    if len(stream) < size:
        raise BadData(f"the PNG is cut short: {size} bytes of pixels expected, {len(stream)} found.")
    return np.frombuffer(stream, dtype=np.uint8)


def assemble(header: Header, stream: Bytes) -> Bytes:
    """Return samples of the full image, HxWxC, one byte each; those of fewer bits are not yet scaled."""
    samples = np.empty((header.height, header.width, CHANNELS[header.colour_type]), dtype=np.uint8)
    offset = 0
    steps = ADAM7 if header.interlaced else ((0, 0, 1, 1),)
    for (columns, rows), (left, top, dx, dy) in zip(sizes(header), steps, strict=True):
        if rows == 0:
            continue
        width = 1 + header.row_bytes(columns)
        lines = stream[offset : offset + rows * width].reshape(rows, width)
        offset += lines.size
        samples[top::dy, left::dx] = unpack(header, restore(lines, max(1, header.pixel_bits // 8)), columns)
    return samples


def restore(lines: Bytes, unit: int) -> Bytes:
    """Undo the filter of each line, which its first byte names; `unit` is the distance to the left neighbour."""
    filters, stored = lines[:, 0], np.ascontiguousarray(lines[:, 1:])
    if filters.max() > 4:
        raise BadData(f"the PNG is damaged: there is no filter {filters.max()}.")
    if not filters.any():
        return stored
    rows, columns = stored.shape[0], stored.shape[1] // unit
    # One more row above and one more column to the left, of zeros.
    pixels = np.zeros((rows + 1, columns + 1, unit), dtype=np.int16)
    pixels[1:, 1:] = stored.reshape(rows, columns, unit)
    restore_diagonals(filters[:, None], pixels.reshape(-1, unit), rows, columns)
    return pixels[1:, 1:].reshape(rows, -1).astype(np.uint8)


def restore_diagonals(filters: Bytes, pixels: Shorts, rows: int, columns: int) -> None:
    """Undo a filter in place, from the upper left corner to the lower right.

    Flat, a diagonal is every `columns`-th pixel.
    """
    for diagonal in range(rows + columns - 1):
        top, bottom = max(0, diagonal - columns + 1), min(rows - 1, diagonal)
        first = (top + 1) * (columns + 1) + diagonal - top + 1
        last = first + (bottom - top) * columns
        left, above, corner = (
            pixels[first - back : last - back + 1 : columns] for back in (1, columns + 1, columns + 2)
        )
        here = pixels[first : last + 1 : columns]
        here += predict(filters[top : bottom + 1], left, above, corner)
        here &= 255


def predict(filters: Bytes, left: Shorts, above: Shorts, corner: Shorts) -> Shorts:
    """Return what each pixel was subtracted from: nothing, left, above, their mean, or the nearest to l + a - c."""
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    nearest = np.where(
        (to_left <= to_above) & (to_left <= to_corner), left, np.where(to_above <= to_corner, above, corner)
    )
    predicted: Shorts = np.choose(filters, (np.int16(0), left, above, (left + above) >> 1, nearest))
    return predicted


def unpack(header: Header, rows: Bytes, columns: int) -> Bytes:
    """Turn bytes of a line into samples: the upper byte of two, the byte itself, or several samples in one."""
    channels = CHANNELS[header.colour_type]
    if header.depth == 16:
        return rows[:, ::2].reshape(len(rows), columns, channels)
    if header.depth == 8:
        return rows.reshape(len(rows), columns, channels)
    bits = np.unpackbits(rows, axis=1).reshape(len(rows), -1, header.depth)
    weights = 1 << np.arange(header.depth - 1, -1, -1)
    return (bits @ weights).astype(np.uint8)[:, :columns, None]


def to_rgb(header: Header, samples: Bytes, palette: bytes) -> Bytes:
    """Convert samples of any colour type to RGB of 8 bits."""
    if header.colour_type == PALETTE:
        return look_up(samples, palette)
    if header.depth < 8:
        samples = samples * np.uint8(255 // (2**header.depth - 1))
    if samples.shape[2] < 3:
        return np.repeat(samples[..., :1], 3, axis=2)
    return np.ascontiguousarray(samples[..., :3])


def look_up(samples: Bytes, palette: bytes) -> Bytes:
    """Return the colours that samples are the numbers of; numbers beyond the palette are black."""
    if not palette or len(palette) % 3:
        raise BadData("the PNG is damaged: it has no palette.")
    colours = np.zeros((256, 3), dtype=np.uint8)
    table = np.frombuffer(palette[: 3 * 256], dtype=np.uint8).reshape(-1, 3)
    colours[: len(table)] = table
    return np.take(colours, samples[..., 0], axis=0)
