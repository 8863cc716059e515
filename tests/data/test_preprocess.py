"""Whole pipelines against TensorFlow graphs written from the specification, on real photographs."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

import viaduct.data
from viaduct.data import preprocess, references
from viaduct.data.colour import (
    ChromaChange,
    ColourRanges,
    SaturationChange,
    YiqChange,
    draw_chroma_change,
    draw_saturation_change,
    draw_yiq_change,
)
from viaduct.data.preprocess import get_normalisation, normalise, prepare_image, sample_crop
from viaduct.errors import BadData, BadValue, UnknownName

from .photographs import NAMES, encode_photograph, photograph, tensorflow

SUBSAMPLINGS = ("420", "444")


def their_image(name: str, data: bytes) -> Any:
    """Evaluation before normalisation, 0..255, one TensorFlow operation for each step of section 8."""
    tf = tensorflow()
    decoded = tf.io.decode_jpeg(data, channels=3, **their_decoder(name, train=False))
    if name == "resnext":
        image = tf.cast(decoded[None], tf.float32)
        return tf.image.crop_and_resize(image, [[0.1, 0.1, 0.9, 0.9]], [0], [224, 224])[0]
    if name == "amoebanet":
        cropped = tf.image.central_crop(tf.image.convert_image_dtype(decoded, tf.float32), 0.875)
        return tf.compat.v1.image.resize_bilinear(cropped[None], [224, 224])[0] * 255
    sides = tf.cast(tf.shape(decoded)[:2], tf.float32)
    sides = tf.cast(sides * (256.0 / tf.reduce_min(sides)), tf.int32)
    top, left = (sides[0] - 224) // 2, (sides[1] - 224) // 2
    return tf.compat.v1.image.resize_bilinear(decoded[None], sides)[0, top : top + 224, left : left + 224]


def their_decoder(name: str, *, train: bool) -> dict[str, Any]:
    plain = name == "v15" or (name == "resnext" and not train)
    return {"dct_method": "INTEGER_FAST", "fancy_upscaling": False} if plain else {}


def their_normalised(name: str, seen: Any) -> Any:
    if name == "official":
        return seen - [123.68, 116.78, 103.94]
    if name == "v15":
        return (seen - [123.68, 116.28, 103.53]) / [58.395, 57.12, 57.385]
    if name == "resnext":
        return (seen - [121.0, 115.0, 100.0]) * [1 / 70, 1 / 68, 1 / 71]
    return (seen / 255 - 0.5) * 2


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("photo", NAMES)
@pytest.mark.parametrize("name", references.names())
def test_evaluation_agrees_with_tensorflow(name: str, photo: str, subsampling: str) -> None:
    """One grey level is asked for; the same decoder and the same places give a ten-thousandth."""
    data = encode_photograph(photo, subsampling)
    theirs = their_image(name, data)
    np.testing.assert_allclose(prepare_image(name, data), theirs.numpy(), rtol=0, atol=1e-4)
    made = preprocess(name, data)
    assert (made.dtype, made.shape) == (np.float32, (224, 224, 3))
    np.testing.assert_allclose(made, their_normalised(name, theirs).numpy(), rtol=0, atol=2e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["official", "v15"])
def test_training_is_crop_flip_resize(name: str, seed: int) -> None:
    """The same draws, given to TensorFlow: crop, then the random flip."""
    data, tf = encode_photograph("coffee"), tensorflow()
    drawn = np.random.default_rng(seed)
    y, x, height, width = sample_crop(name, 400, 600, None, drawn)
    cropped = tf.io.decode_jpeg(data, channels=3, **their_decoder(name, train=True))[y : y + height, x : x + width]
    if drawn.random() < 0.5:
        cropped = tf.image.flip_left_right(cropped)
    theirs = their_normalised(name, tf.compat.v1.image.resize_bilinear(cropped[None], [224, 224])[0]).numpy()
    ours = preprocess(name, data, train=True, generator=np.random.default_rng(seed))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-4)


def their_colour(name: str, seen: Any, colour: SaturationChange | ChromaChange) -> Any:
    tf = tensorflow()
    if isinstance(colour, SaturationChange):
        seen = tf.image.adjust_brightness(seen, colour.brightness)
        seen = tf.image.adjust_contrast(seen, colour.contrast)
        return tf.clip_by_value(tf.image.adjust_saturation(seen, colour.saturation), 0.0, 255.0)
    b, cb, cr = astuple(colour)
    shift = [1.402 * cr + b, -0.344136 * cb - 0.714136 * cr + b, 1.772 * cb + b]
    return tf.clip_by_value(seen / 255 + shift, 0.0, 1.0) * 255


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["resnext", "amoebanet"])
def test_training_is_crop_resize_flip_colour(name: str, seed: int) -> None:
    data, tf = encode_photograph("coffee"), tensorflow()
    drawn = np.random.default_rng(seed)
    y, x, height, width = sample_crop(name, 400, 600, None, drawn)
    cropped = tf.io.decode_jpeg(data, channels=3)[y : y + height, x : x + width]
    seen = tf.compat.v1.image.resize_bilinear(cropped[None], [224, 224])[0]
    if drawn.random() < 0.5:
        seen = tf.image.flip_left_right(seen)
    colour = draw_saturation_change(drawn) if name == "resnext" else draw_chroma_change(drawn)
    theirs = their_normalised(name, their_colour(name, seen, colour)).numpy()
    ours = preprocess(name, data, train=True, generator=np.random.default_rng(seed))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-4)


@pytest.mark.parametrize("saturation", [0.4, 1.0, 1.6])
@pytest.mark.parametrize("contrast", [0.4, 1.0, 1.6])
@pytest.mark.parametrize("brightness", [-0.4, 0.0, 0.4])
def test_resnext_colour_is_tensorflows(brightness: float, contrast: float, saturation: float) -> None:
    """Noise and greys too, whose values leave 0..255 and turn negative before they are clipped."""
    rng = np.random.default_rng(0)
    seen = np.concatenate([rng.uniform(0, 255, (40, 60, 3)), np.repeat(rng.uniform(0, 255, (9, 60, 1)), 3, 2)])
    seen = seen.astype(np.float32)
    colour = SaturationChange(brightness, contrast, saturation)
    theirs = their_colour("resnext", seen, colour).numpy()
    np.testing.assert_allclose(colour(seen.copy()), theirs, rtol=0, atol=1e-3)


@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (32 / 255, 0.1, -0.1), (-32 / 255, -0.1, 0.1)])
def test_amoebanet_colour_is_tensorflows(colour: tuple[float, float, float]) -> None:
    seen = photograph("chelsea")[:50, :70].astype(np.float32)
    theirs = their_colour("amoebanet", seen, ChromaChange(*colour)).numpy()
    np.testing.assert_allclose(ChromaChange(*colour)(seen.copy()), theirs, rtol=0, atol=1e-3)


def yiq_by_hand(seen: np.ndarray, hue: float, saturation: float) -> np.ndarray:
    """Luma stays; the two chroma axes are turned and scaled."""
    red, green, blue = np.moveaxis(seen.astype(np.float64), -1, 0)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    in_phase = 0.596 * red - 0.274 * green - 0.322 * blue
    quadrature = 0.211 * red - 0.523 * green + 0.312 * blue
    chroma = (in_phase + 1j * quadrature) * saturation * np.exp(1j * hue)
    back = ((0.95617069, 0.62143257), (-0.2726886, -0.64681324), (-1.103744, 1.70062309))
    return np.stack([luma + a * chroma.real + b * chroma.imag for a, b in back], axis=-1)


@pytest.mark.parametrize(("hue", "saturation"), [(0.0, 1.0), (0.4, 0.6), (-0.4, 1.4), (3.0, 0.0)])
def test_increased_colours_rotate_and_scale_the_chroma(hue: float, saturation: float) -> None:
    seen = np.random.default_rng(2).uniform(60, 190, (6, 5, 3)).astype(np.float32)
    varied = YiqChange(0.0, hue, saturation, 1.0)(seen.copy())
    np.testing.assert_allclose(varied, np.clip(yiq_by_hand(seen, hue, saturation), 0, 255), rtol=0, atol=1e-3)


def test_increased_colours_are_applied_in_the_stated_order() -> None:
    seen = np.random.default_rng(2).uniform(0, 255, (6, 5, 3)).astype(np.float32)
    colour = YiqChange(20.0, 0.3, 1.2, 0.7)
    brighter = yiq_by_hand(seen + 20, 0.3, 1.2)
    mean = brighter.mean((0, 1))
    expected = np.clip((brighter - mean) * 0.7 + mean, 0, 255)
    np.testing.assert_allclose(colour(seen.copy()), expected, rtol=0, atol=1e-2)


def test_increased_colours_stay_within_their_ranges() -> None:
    generator = np.random.default_rng(0)
    drawn = np.array([astuple(draw_yiq_change(generator, ColourRanges(8, 0.5, 0.25, 0.1))) for _ in range(4000)])
    lowest, highest = [-8, -0.1 * np.pi, 0.25, 0.5], [8, 0.1 * np.pi, 1.75, 1.5]
    assert (drawn >= lowest).all()
    assert (drawn <= highest).all()
    np.testing.assert_allclose(drawn.min(0), lowest, atol=0.01, rtol=0.01)
    np.testing.assert_allclose(drawn.max(0), highest, atol=0.01, rtol=0.01)


def test_colours_are_drawn_from_the_stated_ranges() -> None:
    generator = np.random.default_rng(0)
    resnext = np.array([astuple(draw_saturation_change(generator)) for _ in range(2000)])
    amoebanet = np.array([astuple(draw_chroma_change(generator)) for _ in range(2000)])
    np.testing.assert_allclose(resnext.min(0), [-0.4, 0.4, 0.4], atol=0.01)
    np.testing.assert_allclose(resnext.max(0), [0.4, 1.6, 1.6], atol=0.01)
    np.testing.assert_allclose(abs(amoebanet).max(0), [32 / 255, 0.1, 0.1], atol=0.001)


@pytest.mark.parametrize("photo", ["chelsea", "coffee", "rocket"])
@pytest.mark.parametrize("name", references.names())
def test_fast_is_exact_where_nothing_can_shrink(name: str, photo: str) -> None:
    assert np.array_equal(
        preprocess(name, encode_photograph(photo), mode="fast"), preprocess(name, encode_photograph(photo))
    )


@pytest.mark.parametrize("photo", ["astronaut", "retina", "hubble"])
def test_fast_differs_by_as_much_as_its_docstring_says(photo: str) -> None:
    difference = abs(
        prepare_image("official", encode_photograph(photo), mode="fast")
        - prepare_image("official", encode_photograph(photo))
    )
    assert 0.5 < difference.mean() < 5


def test_fast_does_not_change_a_png() -> None:
    data = tensorflow().io.encode_png(photograph("astronaut")).numpy()
    assert np.array_equal(prepare_image("official", data, mode="fast"), prepare_image("official", data))


@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize("size", [32, 96, 299])
def test_other_sizes(name: str, size: int) -> None:
    assert preprocess(name, encode_photograph("chelsea"), size=size).shape == (size, size, 3)
    assert preprocess(name, encode_photograph("small"), True, np.random.default_rng(0), size=size).shape == (
        size,
        size,
        3,
    )


@pytest.mark.parametrize("name", references.names())
def test_the_same_generator_gives_the_same_image_in_any_thread(name: str) -> None:
    def prepare(seed: int) -> np.ndarray:
        return preprocess(name, encode_photograph(NAMES[seed % 4]), True, np.random.default_rng(seed))

    alone = [prepare(seed) for seed in range(24)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(prepare, range(24)))
    assert all(np.array_equal(first, second) for first, second in zip(alone, together, strict=True))


def test_an_image_can_be_written_into_a_batch() -> None:
    batch = np.zeros((2, 224, 224, 3), np.float32)
    prepare_image("resnext", encode_photograph("chelsea"), True, np.random.default_rng(1), out=batch[1])
    assert np.array_equal(
        batch[1], prepare_image("resnext", encode_photograph("chelsea"), True, np.random.default_rng(1))
    )
    assert (batch[0] == 0).all()


@pytest.mark.parametrize("name", references.names())
def test_normalising_later_is_the_same(name: str) -> None:
    mean, scale = get_normalisation(name)
    seen = prepare_image(name, encode_photograph("chelsea"))
    np.testing.assert_allclose((seen - mean) * scale, preprocess(name, encode_photograph("chelsea")), rtol=0, atol=1e-5)


def test_a_view_of_an_array_is_normalised_in_place() -> None:
    every_other = np.full((6, 8, 3), 100, np.float32)[:, ::2]
    assert normalise("resnext", every_other) is every_other
    np.testing.assert_allclose(every_other[0, 0], [-21 / 70, -15 / 68, 0], atol=1e-6)


def test_boxes_are_used_by_official_and_ignored_by_amoebanet() -> None:
    boxes = [[0.0, 0.0, 0.05, 0.05]]

    def prepare_five(name: str, boxes: Any) -> np.ndarray:
        return np.stack(
            [prepare_image(name, encode_photograph("chelsea"), True, np.random.default_rng(i), boxes) for i in range(5)]
        )

    assert np.array_equal(prepare_five("amoebanet", boxes), prepare_five("amoebanet", None))
    assert not np.array_equal(prepare_five("official", boxes), prepare_five("official", None))


def test_training_without_a_generator_is_refused() -> None:
    with pytest.raises(BadValue, match="needs a generator"):
        preprocess("official", encode_photograph("small"), train=True)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UnknownName, match="Closest is 'official'"):
        preprocess("oficial", encode_photograph("small"))
    with pytest.raises(BadValue, match="mode must be"):
        preprocess("official", encode_photograph("small"), mode="faster")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="size must be"):
        preprocess("official", encode_photograph("small"), size=0)
    with pytest.raises(BadData, match="Premature end"):
        preprocess("official", encode_photograph("small")[:-100])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("name", ["official", "v15", "resnext", "amoebanet"])
def test_an_input_may_have_very_few_pixels(name: str, size: int) -> None:
    for mode in ("exact", "fast"):
        for photo in ("small", "tall", "wide"):
            assert prepare_image(name, encode_photograph(photo), size=size, mode=mode).shape == (size, size, 3)
            rng = np.random.default_rng(size)
            assert prepare_image(name, encode_photograph(photo), True, rng, size=size, mode=mode).shape == (
                size,
                size,
                3,
            )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("official", "path.jpg"), r"encoded bytes, got the str 'path\.jpg'\.\n  Read the file first"),
        (("official", None), "encoded bytes, got the NoneType None"),
        ((None, b""), "given by its name, not by None"),
        (("official", b"", True, 7), "generator must be a numpy Generator, got the int 7"),
        (("official", b"", False, None, None, 2.5), r"size must be a whole number of 1 or more, got 2\.5"),
        (("official", b"", False, None, None, "224"), "size must be a whole number of 1 or more, got '224'"),
    ],
)
def test_arguments_of_another_type_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        preprocess(*arguments)


def test_importing_the_package_imports_no_torch_and_public_names_exist() -> None:
    code = (
        "import sys, viaduct.data\n"
        "assert not {'torch', 'simplejpeg', 'viaduct.data.preprocess'} & set(sys.modules)\n"
        "assert callable(viaduct.data.preprocess) and callable(viaduct.data.sample_crop)\n"
        "assert 'torch' not in sys.modules and 'simplejpeg' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'preproces'"):
        _ = viaduct.data.preproces  # type: ignore[attr-defined]
