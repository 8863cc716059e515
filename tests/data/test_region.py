"""Decoding only a region: the pixels of a full decode, whatever the crop; and damage is left to the full decoder."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import simplejpeg

from viaduct.data import jpeg, references, region
from viaduct.data.compiled import find_compiled
from viaduct.data.geometry import mirror_before, resample, shrink_axis, stretch_axis
from viaduct.data.preprocess import prepare_image, preprocess
from viaduct.errors import BadData

from .photographs import encode_photograph, photograph

built = pytest.mark.skipif(
    region.find_function("decode_view") is None, reason="the extension was not built, or is switched off"
)
KINDS = ("444", "422", "420", "440", "411", "grey", "progressive", "restarts", "optimised")


def with_pillow(pixels: np.ndarray, **options: Any) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image_module.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


@cache
def make_jpeg(kind: str, height: int, width: int, quality: int = 85) -> bytes:
    pixels = np.ascontiguousarray(photograph("astronaut")[:height, 80 : 80 + width])
    if kind == "grey":
        return with_pillow(pixels[..., 0], quality=quality)
    if kind == "progressive":
        return with_pillow(pixels, quality=quality, progressive=True)
    if kind == "restarts":
        return with_pillow(pixels, quality=quality, restart_marker_blocks=5)
    if kind == "optimised":
        return with_pillow(pixels, quality=quality, optimize=True)
    return simplejpeg.encode_jpeg(pixels, quality=quality, colorsubsampling=kind)


def decode_crop(data: bytes, y: int, x: int, height: int, width: int, **options: Any) -> np.ndarray | None:
    """The pixels of a crop by way of the extension; None if it left them to the full decoder."""
    out = np.empty((height, width, 3), np.float32)
    done = region.decode_view(data, stretch_axis(y, height, height), stretch_axis(x, width, width), out, **options)
    return out if done else None


@built
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fancy", [True, False], ids=["fancy", "plain"])
@pytest.mark.parametrize("dct", ["fast", "accurate"])
@pytest.mark.parametrize("shrink", [1, 2, 4, 8])
def test_a_crop_has_the_pixels_of_the_whole_image(kind: str, fancy: bool, dct: jpeg.Dct, shrink: jpeg.Shrink) -> None:
    rng = np.random.default_rng([KINDS.index(kind), fancy, dct == "fast", shrink])
    # The binding is asked for a size, and shrinks a tiny image further than it was told to.
    tiny = [(1, 1), (3, 2)] if shrink == 1 else []
    for height, width in ((211, 307), (8, 300), (300, 9), (64, 48), *tiny):
        data = make_jpeg(kind, height, width)
        decoded = jpeg.decode(data, dct, fancy, shrink)
        for _ in range(6):
            y, x = (int(rng.integers(0, side)) for side in decoded.shape[:2])
            rows, columns = (
                int(rng.integers(1, side - at + 1)) for side, at in zip(decoded.shape[:2], (y, x), strict=True)
            )
            crop = decode_crop(data, y, x, rows, columns, dct=dct, fancy_upsampling=fancy, shrink=shrink)
            assert crop is not None
            assert np.array_equal(crop, decoded[y : y + rows, x : x + columns]), (height, width, y, x, rows, columns)


@built
@pytest.mark.parametrize("kind", ["420", "422", "444"])
def test_a_resized_mirrored_and_normalised_crop_is_equal_to_the_bit(kind: str) -> None:
    data = make_jpeg(kind, 300, 400)
    decoded = jpeg.decode(data)
    mean, scale = np.array([120, 110, 100], np.float32), np.array([0.5, 0.25, 1 / 3], np.float32)
    for size, y, x, height, width in ((64, 3, 5, 290, 300), (224, 100, 200, 60, 50), (97, 0, 0, 300, 400)):
        rows, columns = stretch_axis(y, height, size), mirror_before(stretch_axis(x, width, size), x, width)
        out = np.empty((size, size, 3), np.float32)
        assert region.decode_view(data, rows, columns, out)
        assert np.array_equal(out, resample(decoded, rows, columns))
        assert region.decode_view(data, rows, columns, out, normalisation=(np.tile(-mean, size), np.tile(scale, size)))
        assert np.array_equal(out, (resample(decoded, rows, columns) - mean) * scale)


@built
def test_a_shrunk_image_is_sampled_at_positions_of_the_shrunk_one() -> None:
    data = make_jpeg("420", 500, 430)
    half = jpeg.decode(data, shrink=2)
    rows, columns = shrink_axis(stretch_axis(20, 460, 200), 2, 250), shrink_axis(stretch_axis(1, 420, 200), 2, 215)
    out = np.empty((200, 200, 3), np.float32)
    assert region.decode_view(data, rows, columns, out, shrink=2)
    assert np.array_equal(out, resample(half, rows, columns))


@contextlib.contextmanager
def without_the_extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv(region.DISABLING_VARIABLE, "1")
        find_compiled.cache_clear()
        yield
    find_compiled.cache_clear()


@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_every_reference_gives_the_same_without_the_extension(
    name: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [encode_photograph(photo, sub) for photo in ("chelsea", "retina", "small") for sub in ("420", "444")]

    def preprocess_all() -> list[np.ndarray]:
        rngs = [np.random.default_rng(number) for number in range(len(images))]
        evaluated = [preprocess(name, data, mode=mode) for data in images]
        return evaluated + [preprocess(name, d, True, c, mode=mode) for d, c in zip(images, rngs, strict=True)]

    quick = preprocess_all()
    with without_the_extension(monkeypatch):
        slow = preprocess_all()
    assert all(np.array_equal(first, second) for first, second in zip(quick, slow, strict=True))


def test_fast_training_repeats_chroma_and_differs_little() -> None:
    exact, fast = (
        prepare_image("official", encode_photograph("chelsea"), True, np.random.default_rng(3), mode=mode)
        for mode in ("exact", "fast")
    )
    assert 0 < abs(exact - fast).mean() < 1


@built
def test_what_is_below_the_crop_is_not_read() -> None:
    data = make_jpeg("420", 480, 300)
    spoiled = data[: len(data) * 3 // 4] + bytes(len(data) // 8) + data[len(data) * 7 // 8 :]
    crop = decode_crop(spoiled, 10, 20, 100, 100)
    assert crop is not None
    assert np.array_equal(crop, jpeg.decode(data)[10:110, 20:120])
    assert decode_crop(spoiled, 10, 20, 470, 100) is None


@built
@pytest.mark.parametrize("kept", [100, 2000, 10_000, -2], ids=str)
def test_a_file_cut_short_is_refused_even_where_the_crop_is_whole(kept: int) -> None:
    data = make_jpeg("420", 300, 300)[:kept]
    assert decode_crop(data, 0, 0, 8, 8) is None
    with pytest.raises(BadData):
        preprocess("official", data)


@built
def test_tolerated_damage_gives_the_pixels_of_the_full_decoder() -> None:
    data = encode_photograph("chelsea")
    data = data[:15_000] + b"\xff\xd0abc" + data[15_000:]
    assert decode_crop(data, 0, 0, 300, 451) is None
    assert np.array_equal(prepare_image("official", data)[0, 0], prepare_image("official", data, size=224)[0, 0])


@built
def test_cmyk_incomplete_scans_and_png_are_left_to_the_full_decoder() -> None:
    image_module = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image_module.new("CMYK", (40, 30), (9, 99, 19, 29)).save(stream, "JPEG")
    assert decode_crop(stream.getvalue(), 0, 0, 8, 8) is None
    stream = io.BytesIO()
    image_module.new("RGB", (40, 30)).save(stream, "PNG")
    assert decode_crop(stream.getvalue(), 0, 0, 8, 8) is None
    data = make_jpeg("progressive", 200, 200)
    last_scan = data.rindex(b"\xff\xda")
    assert decode_crop(data[:last_scan] + b"\xff\xd9", 0, 0, 8, 8) is None


@built
@pytest.mark.parametrize(
    ("y", "x", "height", "width"), [(0, 0, 41, 1), (0, 0, 1, 31), (40, 0, 1, 1), (0, 30, 1, 1), (10**12, 0, 1, 1)]
)
def test_positions_outside_of_the_image_are_never_read(y: int, x: int, height: int, width: int) -> None:
    assert decode_crop(make_jpeg("420", 40, 30), y, x, height, width) is None


@built
def test_wrong_arguments_raise() -> None:
    data, axis, out = make_jpeg("420", 40, 30), stretch_axis(0, 9, 9), np.empty((9, 9, 3), np.float32)
    compiled = region.find_function("decode_view")
    assert compiled is not None
    good = [data, *axis, *axis, out, 1, True, True, None, None]
    assert compiled(*good)
    backwards = mirror_before(axis, 0, 9)
    line = np.zeros(27, np.float32)
    for change, error in [
        ({1: backwards.first, 2: backwards.second}, ValueError),
        ({1: axis.first - 1}, ValueError),
        ({4: axis.first - 1}, ValueError),
        ({3: axis.fraction[:-1]}, ValueError),
        ({7: out[:8].copy()}, ValueError),
        ({7: out.astype(np.float64)}, TypeError),
        ({8: 3}, ValueError),
        ({11: line[:5], 12: line}, ValueError),
        ({1: axis.first.astype(np.int32)}, TypeError),
        ({1: axis.first[:0], 2: axis.second[:0], 3: axis.fraction[:0], 7: out[:0].copy()}, ValueError),
    ]:
        with pytest.raises(error):
            compiled(*[change.get(number, value) for number, value in enumerate(good)])


def mutate_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, or some cut out or doubled; the end marker stays, or the extension would not look at it."""
    changed = bytearray(data)
    for offset in rng.integers(2, len(data) - 2, int(rng.integers(1, 5))):
        changed[offset] = rng.integers(0, 256)
    begin, end = sorted(int(offset) for offset in rng.integers(2, len(data) - 2, 2))
    if rng.random() < 0.2:
        del changed[begin : min(end, begin + 50)]
    elif rng.random() < 0.2:
        changed[begin:begin] = changed[begin : min(end, begin + 50)]
    return bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_mutations_end_in_the_same_pixels_or_a_named_error(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    sound = make_jpeg(kind, 70, 90, 75)
    for _ in range(400):
        data = mutate_bytes(sound, rng)
        y, x = int(rng.integers(0, 60)), int(rng.integers(0, 80))
        crop = decode_crop(data, y, x, 10, 10)
        with contextlib.suppress(BadData):
            decoded = jpeg.decode(data)
            assert crop is None or np.array_equal(crop, decoded[y : y + 10, x : x + 10])


@built
def test_threads_do_not_disturb_each_other_and_nothing_is_leaked() -> None:
    resource = pytest.importorskip("resource")
    datas = [make_jpeg("420", 300, 400), mutate_bytes(make_jpeg("420", 300, 400), np.random.default_rng(1))]

    def work(number: int) -> None:
        crop = decode_crop(datas[number % 2], number % 40, number % 90, 200, 200)
        assert number % 2 or crop is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(200)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        list(pool.map(work, range(1000)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB; one row leaked a call: 2 MiB


def test_an_extension_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(region.DISABLING_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "viaduct.data._region", None)
    find_compiled.cache_clear()
    assert region.find_function("decode_view") is None
    assert region.describe_decoder().startswith("whole images with simplejpeg (no extension: ")
    assert preprocess("official", encode_photograph("small")).shape == (224, 224, 3)
    find_compiled.cache_clear()


def test_the_environment_variable_disables_the_extension() -> None:
    code = (
        "from viaduct.data import region; print(region.describe_decoder(), region.find_function('decode_view') is None)"
    )
    environment = {**os.environ, region.DISABLING_VARIABLE: "1"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert answer.stdout == f"whole images with simplejpeg ({region.DISABLING_VARIABLE} is set) True\n"
