"""Decoding, bit for bit as TensorFlow does it, and what happens to files that are odd, broken or no JPEG."""

from __future__ import annotations

import builtins
import contextlib
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import simplejpeg

from viaduct.data import jpeg, png
from viaduct.errors import BadData, BadValue, ViaductError

from .photographs import encode_photograph, photograph, tensorflow


def pillow_encoded(image: np.ndarray, kind: str, mode: str | None = None, **options: Any) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    made = image_module.fromarray(image)
    if mode is not None:
        made = image_module.frombytes(mode, (image.shape[1], image.shape[0]), image.tobytes())
    stream = io.BytesIO()
    made.save(stream, kind, **options)
    return stream.getvalue()


def tensorflow_decoded(data: bytes, dct: str = "", fancy: bool = True) -> np.ndarray:
    return tensorflow().io.decode_jpeg(data, channels=3, dct_method=dct, fancy_upscaling=fancy).numpy()


@pytest.mark.parametrize("name", ["chelsea", "coffee", "rocket", "small"])
@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440"])
@pytest.mark.parametrize("fancy", [True, False], ids=["fancy", "plain"])
@pytest.mark.parametrize(("dct", "theirs"), [("fast", ""), ("fast", "INTEGER_FAST"), ("accurate", "INTEGER_ACCURATE")])
def test_decoded_pixels_equal_tensorflows(name: str, subsampling: str, fancy: bool, dct: jpeg.Dct, theirs: str) -> None:
    data = encode_photograph(name, subsampling)
    assert np.array_equal(jpeg.decode(data, dct, fancy), tensorflow_decoded(data, theirs, fancy))


def test_the_two_dcts_differ_by_a_few_grey_levels() -> None:
    difference = abs(
        jpeg.decode(encode_photograph("chelsea")).astype(int) - jpeg.decode(encode_photograph("chelsea"), "accurate")
    )
    assert 0 < difference.max() <= 6


@pytest.mark.parametrize(("shrink", "height", "width"), [(2, 150, 226), (4, 75, 113), (8, 38, 57)])
def test_shrinking_rounds_up_and_averages(shrink: jpeg.Shrink, height: int, width: int) -> None:
    small = jpeg.decode(encode_photograph("chelsea"), shrink=shrink)
    assert small.shape == (height, width, 3)
    rows, columns = 300 // shrink, 451 // shrink
    blocks = photograph("chelsea")[: rows * shrink, : columns * shrink].reshape(rows, shrink, columns, shrink, 3)
    assert abs(small[:rows, :columns] - blocks.mean((1, 3))).mean() < 2.5


def test_a_buffer_is_used_if_it_is_large_enough() -> None:
    large, tight = np.empty(500_000, np.uint8), np.empty(1000, np.uint8)
    decoded = jpeg.decode(encode_photograph("chelsea"))
    into = jpeg.decode(encode_photograph("chelsea"), buffer=large)
    assert np.shares_memory(into, large)
    assert np.array_equal(into, decoded)
    assert np.array_equal(jpeg.decode(encode_photograph("chelsea"), buffer=tight), decoded)


def test_any_buffer_is_read_and_dimensions_come_from_the_header() -> None:
    data = encode_photograph("chelsea")
    assert np.array_equal(jpeg.decode(memoryview(data)), jpeg.decode(data))
    assert jpeg.read_dimensions(memoryview(data)) == (300, 451)
    assert jpeg.read_dimensions(bytearray(pillow_encoded(photograph("small"), "PNG"))) == (75, 113)


def test_grey_becomes_rgb() -> None:
    data = pillow_encoded(photograph("chelsea")[..., 0], "JPEG")
    decoded = jpeg.decode(data)
    assert (decoded[..., 0] == decoded[..., 2]).all()
    assert np.array_equal(decoded, tensorflow_decoded(data))


@pytest.mark.parametrize("adobe", [True, False])
def test_cmyk_is_multiplied_out_as_tensorflow_does(adobe: bool) -> None:
    four = np.dstack([photograph("chelsea"), photograph("chelsea")[..., :1]])
    data = pillow_encoded(four, "JPEG", mode="CMYK")
    marker = data.index(b"\xff\xee")
    length = int.from_bytes(data[marker + 2 : marker + 4], "big")
    data = data if adobe else data[:marker] + data[marker + 2 + length :]
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


def test_exif_rotation_is_ignored() -> None:
    exif = b"Exif\0\0" + b"MM\0*\0\0\0\x08" + b"\0\x01" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + b"\0\0\0\0"
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    data = encode_photograph("chelsea")[:2] + segment + encode_photograph("chelsea")[2:]
    assert np.array_equal(jpeg.decode(data), jpeg.decode(encode_photograph("chelsea")))
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


def test_progressive() -> None:
    data = pillow_encoded(photograph("chelsea"), "JPEG", progressive=True)
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


@pytest.mark.parametrize("inserted", [b"\xff\xd0abc", b"\xff\xfe\0\x05abc"], ids=["restart", "comment"])
def test_damage_that_tensorflow_tolerates_is_tolerated(inserted: bytes) -> None:
    data = encode_photograph("chelsea")
    data = data[:15_000] + inserted + data[15_000:]
    with pytest.raises(ValueError, match="Corrupt JPEG data"):
        simplejpeg.decode_jpeg(data)
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


def test_bytes_after_the_end_are_ignored() -> None:
    assert np.array_equal(jpeg.decode(encode_photograph("chelsea") + b"abc"), jpeg.decode(encode_photograph("chelsea")))


@pytest.mark.parametrize("kept", [3, 100, 10_000, -20, -2], ids=str)
def test_a_file_cut_short_is_refused_like_in_tensorflow(kept: int) -> None:
    data = encode_photograph("chelsea")[:kept]
    with pytest.raises(BadData, match=r"cannot be decoded|cut short"):
        jpeg.decode(data)
    with pytest.raises(tensorflow().errors.InvalidArgumentError):
        tensorflow_decoded(data)


def test_damage_and_then_an_end_too_early_is_refused() -> None:
    data = encode_photograph("chelsea")
    with pytest.raises(BadData, match="cut short: Corrupt JPEG data"):
        jpeg.decode(data[:15_000] + b"\xff\xd0abc" + data[15_000:-30])


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "it is empty"),
        (b"GIF89a...", "it is a GIF"),
        (b"BM......", "it is a BMP"),
        (b"RIFF1234WEBP", "it is a WebP"),
        (b"RIFF1234WAVE", "it begins with b'RIFF1234'"),
        (b"hello, world", "it begins with b'hello, w'"),
    ],
)
def test_data_that_are_no_image_are_described(data: bytes, what: str) -> None:
    with pytest.raises(BadData, match=what):
        jpeg.decode(data)
    with pytest.raises(BadData, match=what):
        jpeg.read_dimensions(data)


def test_an_incredible_size_is_refused_before_memory_is_allocated() -> None:
    data = bytearray(encode_photograph("small"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xea\x60\xea\x60"
    with pytest.raises(BadData, match="60,000 x 60,000"):
        jpeg.decode(bytes(data))


@pytest.mark.parametrize("options", [{"dct": "float"}, {"shrink": 3}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=f"{next(iter(options))} must be"):
        jpeg.decode(encode_photograph("small"), **options)


def test_a_binding_that_does_not_load_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "simplejpeg":
            raise ImportError("libturbojpeg.so: wrong ELF class")
        return original(name, *rest)

    data = encode_photograph("small")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ViaductError, match=r"cannot be imported: libturbojpeg\.so"):
        jpeg.decode(data)


def test_a_thousand_mutations_end_in_an_image_or_a_named_error() -> None:
    rng = np.random.default_rng(0)
    sources = [encode_photograph("small"), pillow_encoded(photograph("small"), "PNG")]
    for trial in range(1000):
        data = bytearray(sources[trial % 2])
        for offset in rng.integers(0, len(data), 3):
            data[offset] = rng.integers(0, 256)
        with contextlib.suppress(BadData):
            assert jpeg.decode(bytes(data)).ndim == 3


CAT = photograph("chelsea")[:61, :83]
PNGS = {
    "rgb": lambda: pillow_encoded(CAT, "PNG"),
    "grey": lambda: pillow_encoded(CAT[..., 0], "PNG"),
    "rgb and alpha": lambda: pillow_encoded(np.dstack([CAT, CAT[..., :1]]), "PNG"),
    "grey and alpha": lambda: tensorflow().io.encode_png(CAT[..., :2]).numpy(),
    "16 bit rgb": lambda: tensorflow().io.encode_png(CAT.astype(np.uint16) * 257 - 100).numpy(),
    "16 bit grey": lambda: tensorflow().io.encode_png(CAT[..., :1].astype(np.uint16) * 257 - 100).numpy(),
    "one bit": lambda: pillow_encoded(CAT[..., 0] > 99, "PNG"),
    "one column": lambda: pillow_encoded(CAT[:, :1], "PNG"),
    "one pixel": lambda: pillow_encoded(CAT[:1, :1], "PNG"),
    "transparent": lambda: pillow_encoded(CAT, "PNG", transparency=(0, 0, 0)),
    **{f"{colours} colours": lambda colours=colours: palette_png(colours) for colours in (2, 4, 16, 200)},
}


def palette_png(colours: int) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image_module.fromarray(CAT).quantize(colours).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("kind", PNGS)
def test_a_png_in_place_of_a_jpeg_is_decoded_as_tensorflow_does(kind: str) -> None:
    data = PNGS[kind]()
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


def made_png(header: tuple[int, ...], lines: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + png.compute_checksum(kind, body)

    stream = chunk(b"IHDR", struct.pack(">IIBBBBB", *header)) + chunk(b"IDAT", zlib.compress(lines))
    return png.SIGNATURE + stream + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 9), (61, 83)])
def test_an_interlaced_png_is_decoded_as_tensorflow_does(size: tuple[int, int]) -> None:
    height, width = size
    image = CAT[:height, :width]
    passes = [image[top::down, left::across] for left, top, across, down in png.ADAM7]
    # Filter 1 in every line: each byte minus that three before it.
    shifted = [np.diff(part, axis=1, prepend=np.zeros_like(part[:, :1])) for part in passes if part.size]
    lines = b"".join(b"\x01" + line.tobytes() for part in shifted for line in part)
    data = made_png((width, height, 8, 2, 0, 0, 1), lines)
    assert np.array_equal(jpeg.decode(data), image)
    assert np.array_equal(jpeg.decode(data), tensorflow_decoded(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pillow_encoded(CAT, "PNG")[:-400], "cut short"),
        (pillow_encoded(CAT, "PNG")[:-12], "it has no end"),
        (pillow_encoded(CAT, "PNG")[:8], "it has no header"),
        (made_png((9, 9, 8, 2, 0, 0, 0), b"\0" * 50), "252 bytes of pixels expected, 50 found"),
        (made_png((2, 1, 8, 2, 0, 0, 0), b"\x07" * 7), "the PNG is damaged"),
        (made_png((2, 1, 7, 2, 0, 0, 0), b""), "colour type 2 with 7 bits"),
        (made_png((0, 1, 8, 2, 0, 0, 0), b""), "0 x 1 pixels"),
        (made_png((2, 1, 8, 3, 0, 0, 0), b"\0\0\0"), "no palette"),
        (made_png((2, 1, 8, 2, 0, 0, 2), b""), "unknown compression, filter or interlacing"),
        (pillow_encoded(CAT, "PNG").replace(b"IDAT", b"IDAT\x01", 1), "checksum of IDAT"),
    ],
)
def test_a_broken_png_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(BadData, match=reason):
        jpeg.decode(data)
