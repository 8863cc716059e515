"""PNGs of every kind against a decoder written after the standard, a pixel at a time; damaged ones are refused."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pytest

from viaduct.data import png
from viaduct.data.png import make_chunk
from viaduct.errors import BadData

KINDS = [(colour, depth, interlaced) for colour in png.DEPTHS for depth in png.DEPTHS[colour] for interlaced in (0, 1)]
SIZES = [(1, 1), (1, 9), (9, 1), (5, 3), (17, 23), (40, 8)]


def draw_lines(header: png.Header, random: np.random.Generator, filters: int = 5) -> bytes:
    """Return lines of noise with all filters; what becomes of them is an image like any other."""
    lines = b""
    for columns, rows in png.list_stored_images(header):
        if rows and columns:
            block = random.integers(0, 256, (rows, 1 + header.count_row_bytes(columns)))
            block[:, 0] = random.integers(0, filters, rows)
            lines += block.astype(np.uint8).tobytes()
    return lines


def make_png(header: png.Header, compressed: bytes, random: np.random.Generator) -> bytes:
    parts = [(b"IHDR", struct.pack(">IIBBBBB", *header))]
    if header.colour_type == png.PALETTE:  # it may lack colours, and say which are transparent
        colours = int(random.integers(1, 1 + (1 << header.depth)))
        parts += [(b"PLTE", random.bytes(3 * colours)), (b"tRNS", b"\x80" * colours)]
    elif header.colour_type in (0, 2):
        parts.append((b"tRNS", bytes(2 if header.colour_type == 0 else 6)))
    half = len(compressed) // 2
    parts += [(b"IDAT", compressed[:half]), (b"IDAT", compressed[half:]), (b"IEND", b"")]
    return png.SIGNATURE + b"".join(make_chunk(kind, body) for kind, body in parts)


def undo_filter(lines: list[bytes], unit: int) -> list[list[int]]:
    """Return the bytes of each line; `unit` is the distance to the left neighbour."""
    above = [0] * (len(lines[0]) - 1)
    rows = []
    for kind, *line in lines:
        row: list[int] = []
        for position, value in enumerate(line):
            left = row[position - unit] if position >= unit else 0
            corner = above[position - unit] if position >= unit else 0
            estimate = left + above[position] - corner
            nearest = min((left, above[position], corner), key=lambda byte: abs(estimate - byte))
            row.append((value + (0, left, above[position], (left + above[position]) // 2, nearest)[kind]) % 256)
        rows.append(row)
        above = row
    return rows


def decode_naively(header: png.Header, lines: bytes, palette: bytes) -> npt.NDArray[np.uint8]:
    channels = png.CHANNELS[header.colour_type]
    pixels = np.zeros((header.height, header.width, 3), np.uint8)
    steps = png.ADAM7 if header.interlaced else ((0, 0, 1, 1),)
    offset = 0
    for (columns, rows), (left, top, dx, dy) in zip(png.list_stored_images(header), steps, strict=True):
        if not rows:
            continue
        width = 1 + header.count_row_bytes(columns)
        stored = [lines[offset + row * width : offset + (row + 1) * width] for row in range(rows)]
        offset += rows * width
        for number, row in enumerate(undo_filter(stored, max(1, header.pixel_bits // 8))):
            bits = "".join(f"{byte:08b}" for byte in row)
            samples = [int(bits[at : at + header.depth], 2) for at in range(0, len(bits), header.depth)]
            for column in range(columns):
                values = samples[column * channels : (column + 1) * channels]
                pixels[top + number * dy, left + column * dx] = to_colour(header, values, palette)
    return pixels


def to_colour(header: png.Header, values: list[int], palette: bytes) -> list[int]:
    if header.colour_type == png.PALETTE:
        return list(palette[3 * values[0] : 3 * values[0] + 3]) or [0, 0, 0]
    scaled = [value >> 8 if header.depth == 16 else value * 255 // (2**header.depth - 1) for value in values]
    return scaled[:3] if len(scaled) > 2 else scaled[:1] * 3


@pytest.mark.parametrize(("colour", "depth", "interlaced"), KINDS)
def test_every_kind_of_png_has_the_pixels_of_the_standard(colour: int, depth: int, interlaced: int) -> None:
    random = np.random.default_rng(colour * 100 + depth)
    for width, height in SIZES:
        header = png.Header(width, height, depth, colour, 0, 0, interlaced)
        lines = draw_lines(header, random)
        data = make_png(header, zlib.compress(lines), random)
        pixels = png.decode(data)
        assert pixels.flags.writeable
        assert pixels.shape == (height, width, 3)
        palette = dict(png.read_chunks(data)).get(b"PLTE", b"")
        assert np.array_equal(pixels, decode_naively(header, lines, palette))


@pytest.mark.parametrize("damage", ["cut", "short", "flipped", "longer", "no such filter"])
def test_damage_is_named_and_never_decoded(damage: str) -> None:
    random = np.random.default_rng(len(damage))
    messages = []
    for number in range(120):
        colour, depth, interlaced = KINDS[number % len(KINDS)]
        width, height = SIZES[number % len(SIZES)]
        header = png.Header(width, height, depth, colour, 0, 0, interlaced)
        lines = draw_lines(header, random, filters=6 if damage == "no such filter" else 5)
        if damage == "short":
            lines = lines[: -int(random.integers(1, 1 + min(6, len(lines))))]
        compressed = bytearray(zlib.compress(lines))
        if damage == "cut":
            del compressed[-int(random.integers(1, 8)) :]
        elif damage == "flipped":
            compressed[int(random.integers(0, len(compressed)))] ^= 1 << int(random.integers(0, 8))
        elif damage == "longer":
            compressed += b"more"
        data = make_png(header, bytes(compressed), random)
        try:
            png.decode(data)
        except BadData as error:
            messages.append(str(error))
    assert all("the PNG is" in message for message in messages)
    assert (not messages) is (damage == "longer")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_encoded_images_are_decoded_unchanged(channels: int) -> None:
    pixels = np.random.default_rng(channels).integers(0, 256, (5, 7, channels), np.uint8)
    expected = np.repeat(pixels, 3, axis=2) if channels == 1 else pixels[..., :3]
    assert np.array_equal(png.decode(png.encode_png(pixels)), expected)


def test_a_file_without_the_signature_is_refused() -> None:
    data = bytearray(png.encode_png(np.zeros((5, 7, 3), np.uint8)))
    data[1] ^= 1
    for read in (png.decode, png.read_dimensions):
        with pytest.raises(BadData, match="not a PNG"):
            read(bytes(data))


def test_an_array_that_is_no_image_is_not_encoded() -> None:
    with pytest.raises(ValueError, match=r"an image is uint8 of shape \(height, width, 1 or 3 or 4\), not"):
        png.encode_png(np.zeros((4, 4, 2), np.uint8))


def test_a_png_of_many_data_chunks_is_decoded() -> None:
    header = png.Header(64, 64, 8, 2, 0, 0, 0)
    compressed = zlib.compress(draw_lines(header, np.random.default_rng(0)))
    head = png.SIGNATURE + make_chunk(b"IHDR", struct.pack(">IIBBBBB", *header))
    pieces = b"".join(make_chunk(b"IDAT", compressed[index : index + 1]) for index in range(len(compressed)))
    encoded = head + make_chunk(b"IDAT", compressed) + make_chunk(b"IEND", b"")
    assert np.array_equal(png.decode(head + pieces + make_chunk(b"IEND", b"")), png.decode(encoded))
