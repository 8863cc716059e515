"""PNGs through Pillow have the pixels, and the errors, of PNGs through numpy."""

from __future__ import annotations

import struct
import sys
import zlib

import numpy as np
import numpy.typing as npt
import pytest

from viaduct.data import png, png_pillow
from viaduct.data.png_encoder import chunk, encode_png
from viaduct.errors import BadData

KINDS = [(colour, depth, interlaced) for colour in png.DEPTHS for depth in png.DEPTHS[colour] for interlaced in (0, 1)]
SIZES = [(1, 1), (1, 9), (9, 1), (5, 3), (17, 23), (40, 8)]


def draw_lines(header: png.Header, random: np.random.Generator, filters: int = 5) -> bytes:
    """Return lines of noise with all filters; what becomes of them is an image like any other."""
    lines = b""
    for columns, rows in png.sizes(header):
        if rows and columns:
            block = random.integers(0, 256, (rows, 1 + header.row_bytes(columns)))
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
    return png.SIGNATURE + b"".join(chunk(kind, body) for kind, body in parts)


def decode_without_pillow(data: bytes, monkeypatch: pytest.MonkeyPatch) -> npt.NDArray[np.uint8]:
    with monkeypatch.context() as patch:
        patch.setattr(png, "restore_samples", lambda header, lines: None)
        return png.decode(data)


@pytest.fixture
def by_pillow(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether Pillow restored the samples, for each PNG that was decoded."""
    done: list[bool] = []

    def restore_samples(header: png.Header, lines: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8] | None:
        samples = png_pillow.restore_samples(header, lines)
        done.append(samples is not None)
        return samples

    monkeypatch.setattr(png, "restore_samples", restore_samples)
    return done


@pytest.mark.parametrize(("colour", "depth", "interlaced"), KINDS)
def test_pillow_restores_the_same_pixels(
    colour: int, depth: int, interlaced: int, by_pillow: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(colour * 100 + depth)
    for width, height in SIZES:
        header = png.Header(width, height, depth, colour, 0, 0, interlaced)
        data = make_png(header, zlib.compress(draw_lines(header, random)), random)
        pixels = png.decode(data)
        assert pixels.flags.writeable
        assert pixels.shape == (height, width, 3)
        assert np.array_equal(pixels, decode_without_pillow(data, monkeypatch))
    assert any(by_pillow) is (depth < 16)


@pytest.mark.parametrize("damage", ["cut", "short", "flipped", "longer", "no such filter"])
def test_damage_is_answered_as_without_pillow(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(len(damage))
    refused = 0
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
        answers = []
        for decode in (png.decode, lambda data: decode_without_pillow(data, monkeypatch)):
            try:
                answers.append(decode(data).tolist())
            except BadData as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
        refused += isinstance(answers[0], str)
    assert (refused == 0) is (damage == "longer")


def test_lines_without_filters_are_left_to_numpy(by_pillow: list[bool]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    assert np.array_equal(png.decode(encode_png(pixels)), pixels)
    assert by_pillow == [False]


@pytest.mark.parametrize("missing", ["PIL", "PIL.PngImagePlugin"])
def test_pngs_are_decoded_without_pillow(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    png_pillow.load_pillow.cache_clear()
    try:
        assert png_pillow.load_pillow() is None
        random = np.random.default_rng(0)
        header = png.Header(9, 9, 8, 2, 0, 0, 0)
        assert png.decode(make_png(header, zlib.compress(draw_lines(header, random)), random)).shape == (9, 9, 3)
    finally:
        png_pillow.load_pillow.cache_clear()


def test_a_png_in_many_pieces_is_put_together() -> None:
    header = png.Header(64, 64, 8, 2, 0, 0, 0)
    compressed = zlib.compress(draw_lines(header, np.random.default_rng(0)))
    head = png.SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", *header))
    pieces = b"".join(chunk(b"IDAT", compressed[place : place + 1]) for place in range(len(compressed)))
    whole = head + chunk(b"IDAT", compressed) + chunk(b"IEND", b"")
    assert np.array_equal(png.decode(head + pieces + chunk(b"IEND", b"")), png.decode(whole))
