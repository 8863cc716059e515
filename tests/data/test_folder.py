"""Training straight from images: the same network input as from records built of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch

from viaduct.data.build import build_records
from viaduct.data.folder import has_images, open_image_splits
from viaduct.data.records import Records
from viaduct.errors import BadData

RECORDS = Records(global_batch=4, size=32, classes=4)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in ("ant", "bee", "cow"):
        for number in range(10):
            pixels = generator.integers(0, 256, (40, 60, 3), dtype=np.uint8)
            path = tmp_path / "photos" / name / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(simplejpeg.encode_jpeg(pixels, colorspace="RGB"))
    return tmp_path / "photos"


def test_a_folder_gives_the_inputs_of_records_built_from_it(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    seen = {}
    for source in (photos, tmp_path / "records"):
        found = RECORDS.load(source)
        with RECORDS.batches(found.validation, device=torch.device("cpu"), train=False, seed=1) as stream:
            batches = [(batch.images.clone(), batch.labels.clone()) for batch in stream.epoch(0)]
        images = torch.cat([images for images, _ in batches])[: stream.count]
        labels = torch.cat([labels for _, labels in batches])[: stream.count]
        seen[source] = sorted((int(label), image.sum().item()) for label, image in zip(labels, images, strict=True))
        assert found.names == ("0", "ant", "bee", "cow")
    first, second = seen.values()
    assert first == second
    assert len(first) == 3


def test_records_are_not_taken_for_images(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    assert has_images(photos)
    assert not has_images(tmp_path / "records")
    assert not has_images(tmp_path / "nowhere")


def test_a_broken_image_is_named(photos: Path) -> None:
    part = replace(RECORDS, global_batch=1)
    name = open_image_splits(photos)[0].images[0].name
    (photos / name).write_bytes((photos / name).read_bytes()[:200])
    stream = part.batches(part.load(photos).train, device=torch.device("cpu"), train=True, seed=1)
    with pytest.raises(BadData, match=name), stream:
        list(stream.epoch(0))


def test_too_many_broken_images_say_how_to_list_them(photos: Path) -> None:
    for number in range(10):
        (photos / f"ant/{number}.jpg").write_bytes(b"\xff\xd8\xff and no more")
    skipping = replace(RECORDS, on_bad_record="skip")
    stream = skipping.batches(skipping.load(photos).train, device=torch.device("cpu"), train=True, seed=1)
    with pytest.raises(BadData) as caught, stream:
        list(stream.epoch(0))
    assert f"`viaduct data build {photos} --out DIR`, then `viaduct data check DIR --deep`" in caught.value.hints[-1]


def test_images_without_validation_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "1.jpg").write_bytes(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8), colorspace="RGB"))
    with pytest.raises(BadData, match="too few to set some aside"):
        open_image_splits(tmp_path)
