"""Decoding of PNG as in TensorFlow, and encoding.

    decode(data)          uint8 HxWx3, equal to `tf.io.decode_png(data, channels=3)`
    read_dimensions(data) (height, width) from the header
    encode_png(pixels)    bytes of a file

All colour types, depths and interlacing of the standard are supported, up to the limits below. As in TensorFlow, alpha
and transparency are dropped, 16-bit samples keep their upper eight bits, and gamma is ignored. Pillow alone would fill
missing rows with black. So the checksums of critical chunks and the number of decompressed bytes are verified here, and
Pillow then decodes the decompressed rows.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from viaduct.errors import BadData, TooLarge

Bytes: TypeAlias = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type: grey, RGB, palette, grey and alpha, RGB and alpha
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # bits a sample, by colour type
PALETTE = 3  # the colour type of images with a palette
MAX_BYTES = 1 << 29  # of an image's pixels, as in TensorFlow
MAX_PIXELS = MAX_BYTES // 8  # a pixel has up to eight bytes: four samples of 16 bits
# Limit for the decompressed pixels: this many bytes, or this many times the compressed size if that is more.
MAX_UNPACKED_BYTES, MAX_EXPANSION = 1 << 25, 200
# Left, top, step across and step down of the seven images that an interlaced one is stored as.
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

    def count_row_bytes(self, width: int) -> int:
        """Return the bytes of a row of `width` pixels."""
        return (width * self.pixel_bits + 7) // 8


def is_png(data: bytes | bytearray | memoryview) -> bool:
    return data[:8] == SIGNATURE


def read_dimensions(data: bytes) -> tuple[int, int]:
    """Return height and width from the header."""
    header = read_header(dict(read_chunks(data[:33])))
    return header.height, header.width


def decode(data: bytes) -> Bytes:
    """Decode to height x width x 3; raise `BadData` if pixels are missing or a critical chunk is damaged."""
    chunks, parts = dict[bytes, bytes](), list[bytes]()
    for kind, body in read_chunks(data):
        if kind == b"IDAT":
            parts.append(body)
        else:
            chunks[kind] = body
    header = read_header(chunks)
    if b"IEND" not in chunks:
        raise BadData("the PNG is cut short: it has no end.")
    # Each row has a first byte with the number of its filter.
    size = sum(rows * (1 + header.count_row_bytes(columns)) for columns, rows in list_stored_images(header))
    pixels = read_pixels(header, inflate(b"".join(parts), size))
    return look_up_colours(pixels, chunks.get(b"PLTE", b"")) if header.colour_type == PALETTE else pixels


def read_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of every chunk; verify the signature and the checksums of critical chunks."""
    if not is_png(data):
        raise BadData("not a PNG: it does not begin with the signature of one.")
    position = len(SIGNATURE)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        body = bytes(data[position + 8 : position + 8 + length])
        is_critical, name = kind[:1].isupper(), kind.decode("latin-1")
        if len(body) < length:
            raise BadData(f"the PNG is cut short: {length} bytes of {name} promised, {len(body)} found.")
        if is_critical and bytes(data[position + 8 + length : position + 12 + length]) != compute_checksum(kind, body):
            raise BadData(f"the PNG is damaged: the checksum of {name} at byte {position} is wrong.")
        yield kind, body
        if kind == b"IEND":
            return
        position += 12 + length


def make_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + compute_checksum(kind, body)


def compute_checksum(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def read_header(chunks: dict[bytes, bytes]) -> Header:
    """Parse the IHDR chunk; raise `BadData` for values that the standard does not allow, and above MAX_PIXELS."""
    body = chunks.get(b"IHDR", b"")
    if len(body) != 13:
        raise BadData("the PNG is damaged: it has no header.")
    header = Header(*struct.unpack(">IIBBBBB", body))
    if header.depth not in DEPTHS.get(header.colour_type, ()):
        raise BadData(f"the PNG is damaged: colour type {header.colour_type} with {header.depth} bits does not exist.")
    if (header.compression, header.filtering) != (0, 0) or header.interlaced > 1:
        raise BadData("the PNG is damaged: its header names an unknown compression, filter or interlacing.")
    if header.width == 0 or header.height == 0:
        raise BadData(f"the PNG is damaged: by its header it has {header.width} x {header.height} pixels.")
    if header.width * header.height > MAX_PIXELS:
        raise TooLarge(f"the PNG has {header.width:,} x {header.height:,} pixels; at most {MAX_PIXELS:,} are decoded.")
    return header


def list_stored_images(header: Header) -> list[tuple[int, int]]:
    """Return columns and rows of the stored image, or of the seven (some may be empty) of an interlaced PNG."""
    if not header.interlaced:
        return [(header.width, header.height)]
    sizes = [(-(-(header.width - left) // dx), -(-(header.height - top) // dy)) for left, top, dx, dy in ADAM7]
    return [(columns, rows) if columns > 0 and rows > 0 else (0, 0) for columns, rows in sizes]


def inflate(compressed: bytes, size: int) -> Bytes:
    """Decompress the rows, `size` bytes; raise `TooLarge` if this exceeds the limit."""
    if size > max(MAX_UNPACKED_BYTES, MAX_EXPANSION * len(compressed)):
        raise TooLarge(
            f"the PNG expands from {len(compressed):,} to {size:,} bytes of pixels; beyond {MAX_UNPACKED_BYTES:,} "
            f"bytes, at most {MAX_EXPANSION} times the compressed size is decoded."
        )
    try:
        lines = zlib.decompressobj().decompress(compressed, size)
    except zlib.error as error:
        raise BadData(f"the PNG is damaged: {error}.") from None
    if len(lines) < size:
        raise BadData(f"the PNG is cut short: {size} bytes of pixels expected, {len(lines)} found.")
    return np.frombuffer(lines, dtype=np.uint8)


def read_pixels(header: Header, lines: Bytes) -> Bytes:
    """Return colours, height x width x 3, or indices into the palette, height x width x 1.

    Pillow decodes a file made of the header and the verified rows (`lines`), without compression.
    """
    # Pillow requires a palette, but returns the indices: any colours will do.
    palette = [(b"PLTE", bytes(3 << header.depth))] if header.colour_type == PALETTE else []
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", *header)),
        *palette,
        (b"IDAT", zlib.compress(lines.data, 0)),
        (b"IEND", b""),
    ]
    file = SIGNATURE + b"".join(make_chunk(kind, body) for kind, body in parts)
    try:
        with PngImageFile(io.BytesIO(file)) as image:
            if header.colour_type == PALETTE:
                return np.array(image)[..., None]
            if image.mode.startswith("I"):  # grey of 16 bits
                return np.repeat((np.array(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
            return np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise BadData(f"the PNG is damaged: {error}.") from None


def look_up_colours(samples: Bytes, palette: bytes) -> Bytes:
    """Return the colours of palette indices; indices beyond the palette are black."""
    if not palette or len(palette) % 3:
        raise BadData("the PNG is damaged: it has no palette.")
    colours = np.zeros((256, 3), dtype=np.uint8)
    table = np.frombuffer(palette[: 3 * 256], dtype=np.uint8).reshape(-1, 3)
    colours[: len(table)] = table
    return np.take(colours, samples[..., 0], axis=0)


def encode_png(pixels: Bytes) -> bytes:
    """Encode an image of shape (height, width, 1, 3 or 4); raise ValueError for any other array."""
    check_pixels(pixels)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG", compress_level=9)
    return file.getvalue()


def check_pixels(pixels: Bytes, channels: Collection[int] = (1, 3, 4)) -> None:
    """Raise ValueError for an array that is empty or not an 8-bit image with one of these numbers of channels."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in channels or not pixels.size:
        expected = f"uint8 of shape (height, width, {' or '.join(map(str, channels))})"
        raise ValueError(f"an image is {expected}, not {pixels.dtype} of shape {pixels.shape}.")
