"""CropPreparer: crops of several records equal those made one by one; it leaves unusual and damaged records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from viaduct.data import region
from viaduct.data.crops import CropPreparer, make_crop_preparer
from viaduct.data.example import encode_example
from viaduct.data.index import RecordFolder
from viaduct.data.order import make_image_generator
from viaduct.data.png import encode_png
from viaduct.data.preprocess import prepare_image
from viaduct.data.records import Records
from viaduct.data.tfrecord import RecordWriter, frame_record

from .photographs import encode_photograph

SIZE = 33
RECORDS = Records(global_batch=4, size=SIZE)
NETWORKS = ["official", "v15", "resnext", "amoebanet"]
SIDES = [f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")]

pytestmark = pytest.mark.skipif(
    region.find_function("prepare_crops") is None, reason="the extension was not built, or is switched off"
)


def noise(rng: np.random.Generator, subsampling: str = "420") -> bytes:
    """Random image, from tiny to twice as long as it is wide."""
    height, width = (int(rng.choice([1, 2, 7, 16, 40, 63, 90, 131])) + int(rng.integers(4)) for _ in range(2))
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling=subsampling)


def boxes(rng: np.random.Generator, count: int) -> dict[str, Any]:
    corners = np.sort(rng.random((2, 2, count)).astype(np.float32), axis=0)  # (first, last), (y, x)
    if count > 1:
        corners[1, :, 0] = corners[0, :, 0]  # one without an area
    return dict(zip(SIDES, corners.reshape(4, count), strict=True))


def example(image: bytes, **more: Any) -> bytes:
    features = {"image/encoded": image, "image/class/label": 300, "image/class/text": "a thing", "image/width": 7}
    return encode_example({name: value for name, value in (features | more).items() if value is not None})


def folder_of(place: Path, examples: list[bytes], shards: int = 1) -> RecordFolder:
    for shard in range(shards):
        with RecordWriter(place / f"train-{shard:05d}-of-{shards:05d}") as writer:
            for data in examples[shard::shards]:
                writer.write(data)
    return RecordFolder(place, "train")


def crops(folder: RecordFolder, network: str = "official", normalised: bool = False) -> CropPreparer:
    made = make_crop_preparer(replace(RECORDS, preprocess=network), folder, normalised=normalised)
    assert made is not None
    return made


def seen_at_once(
    made: CropPreparer, numbers: list[int], epoch: int = 0, seed: int = 5
) -> tuple[list[bool], np.ndarray]:
    out = np.full((len(numbers), SIZE, SIZE, 3), np.nan, np.float32)
    positions = np.array(numbers) * 1_000_003  # any whole number will do
    seen = made.prepare(np.array(numbers), positions, seed, epoch, out)
    return seen.tolist(), out


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_crops_of_several_records_equal_those_made_one_by_one(tmp_path: Path, network: str, normalised: bool) -> None:
    rng = np.random.default_rng(1)
    images = [noise(rng, subsampling) for subsampling in ("420", "422", "444", "440") for _ in range(10)]
    images += [
        encode_photograph("small"),
        encode_photograph("chelsea"),
        encode_photograph("tall"),
        encode_photograph("wide"),
    ]
    folder = folder_of(tmp_path, [example(data, **boxes(rng, n % 4)) for n, data in enumerate(images)], shards=3)
    numbers = rng.permutation(len(folder)).tolist()
    for epoch, seed in ((0, 5), (2**40, -1), (7, 2**63)):
        seen, out = seen_at_once(crops(folder, network, normalised), numbers, epoch, seed)
        assert seen == [True] * len(numbers)
        for number, row in zip(numbers, out, strict=True):
            fields = folder.read_fields(number)
            generator = make_image_generator(seed, epoch, number * 1_000_003)
            wanted = prepare_image(network, fields.encoded, True, generator, fields.boxes, SIZE, normalised=normalised)
            assert np.array_equal(row, wanted)


@pytest.mark.parametrize("network", ["official", "resnext", "amoebanet"])
@pytest.mark.lengthy
def test_crops_agree_over_thousands_of_draws(tmp_path: Path, network: str) -> None:
    """Rounding is where a crop would differ by a pixel, once in a while."""
    rng = np.random.default_rng(2)
    folder = folder_of(tmp_path, [example(noise(rng), **boxes(rng, n % 3)) for n in range(40)])
    made = crops(folder, network)
    for epoch in range(50):
        seen, out = seen_at_once(made, list(range(40)), epoch)
        assert all(seen)
        for number, row in enumerate(out):
            fields = folder.read_fields(number)
            generator = make_image_generator(5, epoch, number * 1_000_003)
            assert np.array_equal(row, prepare_image(network, fields.encoded, True, generator, fields.boxes, SIZE))


def make_boxed_example(**changes: Any) -> bytes:
    """Example with a point-like box in the middle, after `changes`."""
    return example(encode_photograph("small"), **(dict.fromkeys(SIDES, 0.5) | changes))


def png() -> bytes:
    return encode_png(np.zeros((4, 4, 3), np.uint8))


ODD: dict[str, Callable[[], bytes]] = {
    "no label": lambda: example(encode_photograph("small"), **{"image/class/label": None}),
    "two labels": lambda: example(encode_photograph("small"), **{"image/class/label": [1, 2]}),
    "a label in words": lambda: example(encode_photograph("small"), **{"image/class/label": "cat"}),
    "no image": lambda: encode_example({"image/class/label": 1}),
    "two images": lambda: example(encode_photograph("small"), **{"image/encoded": [encode_photograph("small"), b"x"]}),
    "three sides of a box": lambda: example(encode_photograph("small"), **dict.fromkeys(SIDES[:3], 0.5)),
    "sides that differ in number": lambda: example(
        encode_photograph("small"), **(dict.fromkeys(SIDES, 0.5) | {SIDES[0]: [0.1, 0.2]})
    ),
    "a box outside of the image": lambda: make_boxed_example(**{SIDES[2]: 1.5}),
    "a box upside down": lambda: make_boxed_example(**{SIDES[0]: 0.9}),
    "a box that is not a number": lambda: example(encode_photograph("small"), **dict.fromkeys(SIDES, float("nan"))),
    "more boxes than there is room for": lambda: example(
        encode_photograph("small"), **dict.fromkeys(SIDES, [0.5] * 65)
    ),
    "a PNG": lambda: example(png()),
    "words": lambda: example(b"this is no image"),
    "a JPEG cut short": lambda: example(encode_photograph("small")[:-200]),
    "a JPEG that ends before its pixels": lambda: example(encode_photograph("small")[:100] + b"\xff\xd9"),
    "nothing": lambda: b"",
    "a message cut short": lambda: example(encode_photograph("small"))[:-3],
    "no message": lambda: b"\x0a\xff\xff\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_records_are_left_to_the_caller_and_their_neighbours_prepared(tmp_path: Path, name: str) -> None:
    plain = example(encode_photograph("small"))
    folder = folder_of(tmp_path, [plain, ODD[name](), plain])
    assert seen_at_once(crops(folder), [0, 1, 2])[0] == [True, False, True]


def test_a_record_with_a_wrong_checksum_is_left_to_the_caller(tmp_path: Path) -> None:
    plain = example(encode_photograph("small"))
    folder = folder_of(tmp_path, [plain, plain])
    content = bytearray(folder.files[0].read_bytes())
    content[len(frame_record(plain)) - 60] ^= 1
    folder.files[0].write_bytes(content)
    assert seen_at_once(crops(folder), [0, 1])[0] == [False, True]
    unchecked = RecordFolder(tmp_path, "train", check=False)
    assert seen_at_once(crops(unchecked), [0, 1])[0] == [True, True]


def test_a_record_that_its_file_no_longer_has_is_left_to_the_caller(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [example(encode_photograph("small"))] * 2)
    made = crops(folder)
    folder.files[0].write_bytes(folder.files[0].read_bytes()[:-10])
    assert seen_at_once(made, [0, 1])[0] == [True, False]


def test_records_of_a_deleted_file_are_left_to_the_caller(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [example(encode_photograph("small"))])
    folder.files[0].unlink()
    assert seen_at_once(crops(folder), [0])[0] == [False]


def test_policies_and_increased_colours_have_no_preparer(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [example(encode_photograph("small"))])
    assert make_crop_preparer(replace(RECORDS, auto_augment="imagenet"), folder, normalised=False) is None
    assert make_crop_preparer(replace(RECORDS, increased_aug="on"), folder, normalised=False) is None


def test_crops_that_fast_shrinks_are_left_to_the_caller_and_the_others_are_equal(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [example(encode_photograph(name)) for name in ("small", "chelsea", "wide")])
    made = make_crop_preparer(replace(RECORDS, decode="fast"), folder, normalised=False)
    assert made is not None
    left = []
    for epoch in range(30):
        seen, out = seen_at_once(made, [0, 1, 2], epoch)
        left += [seen.count(False)]
        for number in np.flatnonzero(seen).tolist():
            generator = make_image_generator(5, epoch, number * 1_000_003)
            wanted = prepare_image("official", folder.read_fields(number).encoded, True, generator, None, SIZE, "fast")
            assert np.array_equal(out[number], wanted)
    assert 0 < sum(left) < 90


def test_memory_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    made = crops(folder_of(tmp_path, [example(encode_photograph("small"))]))
    for shape in ((1, SIZE, SIZE, 2), (2, SIZE, SIZE, 3), (0,)):
        with pytest.raises(ValueError, match="out must have"):
            made.prepare(np.array([0]), np.array([0]), 0, 0, np.empty(shape, np.float32))
