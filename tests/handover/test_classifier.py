"""A trained run opened for use: the inputs of evaluation, the names of its classes, undamaged weights."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image

from viaduct.data.png_encoder import encode_png
from viaduct.data.preprocess import preprocess
from viaduct.data.records import Records
from viaduct.errors import BadData, BadRun, TooLarge
from viaduct.handover.classifier import Classifier, list_weights_files, open_run
from viaduct.handover.decoding import decode_image, image_size
from viaduct.handover.labels import read_labels_file
from viaduct.handover.preparing import build_prepare, fit_pixels
from viaduct.training.scoring import score_checkpoints


@pytest.fixture(scope="module")
def classifier(shapes_run: Path) -> Classifier:
    return open_run(shapes_run)


def test_a_prepared_image_is_what_evaluation_sees(classifier: Classifier) -> None:
    source = classifier.recipe.data
    images = source.load(None)
    stream = source.open_batches(images.validation, device=torch.device("cpu"), train=False, seed=0)
    with stream as batches:
        batch = next(iter(batches.epoch(0)))
    for position in (0, 7):
        prepared = classifier.prepare(encode_png(images.validation.images[position]))
        assert np.array_equal(prepared, batch.images[position].permute(1, 2, 0).numpy())


@pytest.mark.parametrize("name", ["official", "v15", "resnext", "amoebanet"])
def test_an_encoded_image_is_prepared_as_its_reference_does(name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    data = simplejpeg.encode_jpeg(pixels, colorspace="RGB")
    prepare = build_prepare(Records(global_batch=8, size=64, preprocess=name), None)  # type: ignore[arg-type]
    assert np.array_equal(prepare(data), preprocess(name, data, size=64))  # type: ignore[operator]


def test_a_bitmap_is_prepared_as_a_png_of_the_same_pixels() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8)
    bitmap = io.BytesIO()
    Image.fromarray(pixels).save(bitmap, "BMP")
    prepare = build_prepare(Records(global_batch=8, size=32), None)
    assert np.allclose(prepare(bitmap.getvalue()), prepare(encode_png(pixels)), atol=1e-4)


def test_the_names_of_the_classes_come_from_the_run(classifier: Classifier, shapes_run: Path) -> None:
    assert classifier.labels[:2] == ("disc", "square")
    assert json.loads((shapes_run / "labels.json").read_text())["labels"] == list(classifier.labels)


def test_a_run_without_checkpoints_is_opened_by_its_final_weights(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    final, newest = open_run(copy), open_run(shapes_run)
    assert list(final.weights_sha256) == ["run/model.safetensors"]
    for name, tensor in newest.network.state_dict().items():
        assert torch.equal(final.network.state_dict()[name], tensor)


def test_checksums_of_weights_are_those_of_the_files(shapes_run: Path) -> None:
    name = "shapes/checkpoints/step-12/model.safetensors"
    expected = hashlib.sha256((shapes_run.parent / name).read_bytes()).hexdigest()
    assert open_run(shapes_run).weights_sha256 == {name: expected}


def test_all_files_of_a_tensorflow_checkpoint_and_no_other_have_checksums(tmp_path: Path) -> None:
    parts = ["model.ckpt-5.data-00000-of-00001", "model.ckpt-5.index"]
    for name in (*parts, "model.ckpt-5.meta", "model.ckpt-50.index", "checkpoint"):
        (tmp_path / name).touch()
    assert sorted(file.name for file in list_weights_files(tmp_path / "model.ckpt-5", averaged=False)) == parts


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP"])
def test_an_image_that_is_cut_short_is_called_so(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, kind)
    with pytest.raises(BadData, match=r"is a .*, but its header is damaged or cut short") as raised:
        decode_image(file.getvalue()[:13])
    assert "object at" not in raised.value.what


def test_a_png_of_too_many_pixels_is_refused_with_the_limit() -> None:
    whole = encode_png(np.zeros((1, 1, 3), np.uint8))
    header = b"IHDR" + struct.pack(">II", 9000, 9000) + whole[24:29]
    large = whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]
    with pytest.raises(TooLarge, match="has 9,000 x 9,000 pixels; at most 67,108,864 are decoded"):
        decode_image(large)


def test_a_run_without_checkpoints_is_scored_by_its_final_weights(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    flags: dict[str, Any] = {"data": None, "device": "cpu", "precision": None, "step": None, "every": False}
    (expected,), (found,) = score_checkpoints(shapes_run, **flags), score_checkpoints(copy, **flags)
    assert found["top1"] == expected["top1"]
    assert found["loss"] == expected["loss"]


def test_damaged_labels_are_named(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy)
    (copy / "labels.json").write_text('{"labels": [1, 2]}')
    with pytest.raises(BadRun, match=r"labels\.json is damaged"):
        open_run(copy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb\nc\n", ("a", "b", "c")), ("0:a\n2:c\n", ("a", "1", "c")), ("x\ny\n", ("0", "x", "y"))],
)
def test_a_labels_file_names_outputs(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text(text)
    assert read_labels_file(tmp_path / "names.txt", 3, 0) == expected


def test_too_many_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(BadData, match="4 names, and the network 3 outputs"):
        read_labels_file(tmp_path / "names.txt", 3, 0)


def test_an_image_is_cut_around_its_middle_and_resized() -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 200
    assert (fit_pixels(pixels, (10, 10)) == 200).all()
    assert fit_pixels(pixels[:1, :1], (10, 10)).shape == (10, 10, 3)


def test_an_animated_gif_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert image_size(file.getvalue()) == (6, 8)
    assert decode_image(file.getvalue())[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello", "not an image of a known format"),
        (b"GIF89a", "it is a GIF, but its header is damaged"),
        (b"RIFF1234", "it is a WebP, but its header is damaged"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadData, match=reason):
        decode_image(data)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    data = encode_png(np.zeros((100, 100, 3), np.uint8))
    with pytest.raises(BadData, match="100 x 100 pixels; at most 9,999"):
        decode_image(data, most_pixels=9_999)


def test_a_small_gif_that_claims_very_many_pixels_is_refused() -> None:
    file = io.BytesIO()
    Image.new("L", (8, 6)).save(file, "GIF")
    data = bytearray(file.getvalue())
    data[6:10] = (10_000).to_bytes(2, "little") * 2
    with pytest.raises(BadData, match="the GIF claims 10,000 x 10,000 pixels, but has"):
        decode_image(bytes(data))
