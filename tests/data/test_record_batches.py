"""Batches of records: which images, in which order, on how many threads, and what happens to bad ones."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch

import viaduct.data
from viaduct.data import record_batches
from viaduct.data.batches import Batch
from viaduct.data.example import encode_example
from viaduct.data.index import RecordFolder
from viaduct.data.order import draw_permutation, make_image_generator
from viaduct.data.record_batches import RecordBatches
from viaduct.data.records import Records
from viaduct.data.shards import format_shard_name
from viaduct.data.tfrecord import BadRecord, RecordWriter, iterate_records
from viaduct.errors import BadData, BadValue

COUNT, SEED = 43, 5
RECORDS = Records(global_batch=8, size=32, classes=4, workers=2)
NETWORKS = ["official", "v15", "resnext", "amoebanet"]
BOXES = {"xmin": 0.2, "xmax": 0.9, "ymin": 0.1, "ymax": 0.8}
NO_JPEG = b"this is no image"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert decode_threads() == []


def decode_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("viaduct-decode")]


def jpeg(number: int) -> bytes:
    """Noise of 40x60, so that a mix-up shows."""
    pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=90)


def write(folder: Path, split: str, sizes: list[int], bad: dict[int, bytes] | None = None) -> None:
    """Shards of these many images; every third has a bounding box. `bad`: other bytes for some of them."""
    folder.mkdir(exist_ok=True)
    number = 0
    for shard, size in enumerate(sizes):
        with RecordWriter(folder / format_shard_name(split, shard, len(sizes))) as writer:
            for _ in range(size):
                encoded = (bad or {}).get(number) or jpeg(number)
                example: dict[str, Any] = {"image/encoded": encoded, "image/class/label": number % 3 + 1}
                if number % 3 == 0:
                    example |= {f"image/object/bbox/{side}": [value] for side, value in BOXES.items()}
                writer.write(encode_example(example))
                number += 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("records")
    write(made, "train", [20, 23])
    write(made, "validation", [COUNT])
    return made


def batches(folder: Path, device: torch.device, train: bool = True, **options: Any) -> RecordBatches:
    records = replace(RECORDS, **options)
    loaded = records.load(folder)
    return records.batches(loaded.train if train else loaded.validation, device=device, train=train, seed=SEED)


def collect(made: RecordBatches, epoch: int, start: int = 0) -> list[Batch]:
    """Copies: on the CPU a batch is good until the next one is asked for."""
    with made:
        return [batch._replace(images=batch.images.clone()) for batch in made.epoch(epoch, start)]


def assert_same(one: list[Batch], other: list[Batch]) -> None:
    assert len(one) == len(other) > 0
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first.images, second.images)  # bitwise
        assert torch.equal(first.labels, second.labels)
        assert torch.equal(first.index, second.index)
        assert (first.mask is None) == (second.mask is None)


def indices(made: list[Batch]) -> list[int]:
    return torch.cat([batch.index for batch in made]).tolist()


def prepare_expected(folder: Path, network: str, number: int, train: bool, epoch: int, position: int) -> np.ndarray:
    fields = Records(1, 32).load(folder).train.folder.read_fields(number)
    generator = make_image_generator(SEED, epoch, position) if train else None
    return viaduct.data.preprocess(network, fields.encoded, train, generator, fields.boxes, size=32)


def test_training_follows_the_order_and_drops_the_remainder(folder: Path, device: torch.device) -> None:
    made = batches(folder, device)
    assert (made.count, made.steps_per_epoch) == (COUNT, 5)
    seen = [indices(collect(made, epoch)) for epoch in range(3)]
    for epoch, numbers in enumerate(seen):
        assert numbers == draw_permutation(SEED, epoch, COUNT)[:40].tolist()
        assert len(set(numbers)) == 40
    assert seen[0] != seen[1] != seen[2]


def test_a_missing_extension_is_reported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batches(folder, torch.device("cpu"))
    warning = "compiled image code is missing"
    if record_batches.find_compiled("_lerp", "lerp") is not None:
        assert warning not in capsys.readouterr().err
    monkeypatch.setattr(record_batches, "find_compiled", lambda extension, name: None)
    batches(folder, torch.device("cpu"))
    batches(folder, torch.device("cpu"), train=False)
    assert capsys.readouterr().err.count(warning) == 1


def test_labels_belong_to_their_images(folder: Path, device: torch.device) -> None:
    for batch in collect(batches(folder, device), 0):
        assert batch.labels.tolist() == [number % 3 + 1 for number in batch.index.tolist()]
        assert batch.mask is None
        assert (batch.labels.dtype, batch.labels.device.type) == (torch.int64, device.type)


def test_labels_are_shifted(folder: Path, device: torch.device) -> None:
    for batch in collect(batches(folder, device, classes=3, label_shift=-1), 0):
        assert batch.labels.tolist() == [number % 3 for number in batch.index.tolist()]


@pytest.mark.parametrize("eval_batch", [0, 1, 10, COUNT, 100])
def test_every_validation_image_is_counted_exactly_once(folder: Path, device: torch.device, eval_batch: int) -> None:
    made = batches(folder, device, train=False, eval_batch=eval_batch)
    size = eval_batch or RECORDS.global_batch
    steps = collect(made, 0)
    assert len(steps) == made.steps_per_epoch == -(-COUNT // size)
    assert all(len(batch.labels) == len(batch.images) == size for batch in steps)
    assert all(batch.mask is None for batch in steps[:-1])
    counted = [batch.index if batch.mask is None else batch.index[batch.mask] for batch in steps]
    assert torch.cat(counted).tolist() == list(range(COUNT))
    assert (steps[-1].mask is None) == (COUNT % size == 0)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_row_is_what_preprocess_makes_of_its_image(
    folder: Path, device: torch.device, network: str, train: bool
) -> None:
    made = batches(folder, device, train, preprocess=network)
    for step, batch in enumerate(collect(made, 1)):
        assert batch.images.shape == (8, 3, 32, 32)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        for row, number in enumerate(batch.index.tolist()):
            seen = batch.images[row].permute(1, 2, 0).cpu().numpy()
            wanted = prepare_expected(folder, network, number, train, epoch=1, position=step * 8 + row)
            if device.type == "cpu":
                assert np.array_equal(seen, wanted)
            else:
                np.testing.assert_allclose(seen, wanted, rtol=0, atol=1e-4)


def test_a_batch_on_the_cpu_must_be_copied_to_be_kept(folder: Path) -> None:
    made = batches(folder, torch.device("cpu"), prefetch=1)
    copies = collect(made, 0)
    kept = list(made.epoch(0))
    assert not all(torch.equal(copy.images, batch.images) for copy, batch in zip(copies, kept, strict=True))
    for copy, batch in zip(copies, made.epoch(0), strict=True):
        assert torch.equal(copy.images, batch.images)  # until the next is asked for


@pytest.mark.parametrize("train", [True, False])
def test_an_epoch_started_late_is_the_tail_of_the_whole_one(folder: Path, device: torch.device, train: bool) -> None:
    epoch = collect(batches(folder, device, train), 2)
    assert_same(collect(batches(folder, device, train), 2, start=3), epoch[3:])
    assert collect(batches(folder, device, train), 2, start=len(epoch)) == []


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"workers": 0}, {"prefetch": 1}, {"prefetch": 9}])
def test_threads_and_prefetching_change_nothing(folder: Path, device: torch.device, options: dict[str, int]) -> None:
    assert_same(collect(batches(folder, device, **options), 0), collect(batches(folder, device), 0))


def test_crops_do_not_depend_on_the_batch_size(folder: Path, device: torch.device) -> None:
    small, large = (collect(batches(folder, device, global_batch=size), 0) for size in (4, 20))
    assert torch.equal(torch.cat([b.images for b in small]), torch.cat([b.images for b in large]))


def test_an_abandoned_iterator_leaves_no_thread(folder: Path, device: torch.device) -> None:
    made = batches(folder, device)
    iterator = made.epoch(0)
    next(iterator)
    assert decode_threads() != []
    del iterator
    gc.collect()
    assert decode_threads() == []


def test_closing_ends_every_iterator_and_its_threads(folder: Path, device: torch.device) -> None:
    with batches(folder, device) as made:
        iterators = [made.epoch(0), made.epoch(1)]
        for iterator in iterators:
            next(iterator)
        assert decode_threads() != []
    assert decode_threads() == []
    assert list(iterators[0]) == []


def test_fewer_records_than_a_batch_are_refused(folder: Path, device: torch.device) -> None:
    with pytest.raises((BadData, BadValue), match="43"):
        batches(folder, device, global_batch=44)


# Bad records


def with_bad(tmp_path: Path, bad: dict[int, bytes]) -> Path:
    write(tmp_path, "train", [20, 23], bad)
    write(tmp_path, "validation", [COUNT])
    return tmp_path


def flip(path: Path, number: int) -> None:
    """Change a byte in the image of a record: its checksum is wrong then."""
    record = next(found for found in iterate_records(path) if found.number == number)
    content = bytearray(path.read_bytes())
    content[record.offset + len(record.data) // 2] ^= 1
    path.write_bytes(content)


def test_an_undecodable_image_stops_with_file_record_and_reason(tmp_path: Path, device: torch.device) -> None:
    made = batches(with_bad(tmp_path, {25: NO_JPEG}), device, train=True, global_batch=COUNT)
    with pytest.raises(
        BadRecord, match=r"train-00001-of-00002: record 5 at byte \d[\d,]*: not a JPEG or PNG"
    ) as caught:
        collect(made, 0)
    assert isinstance(caught.value, BadData)
    assert caught.value.path == tmp_path / "train-00001-of-00002"
    assert "this is" in caught.value.reason
    assert not caught.value.message.endswith("..")


def test_a_truncated_image_stops_the_same_way(tmp_path: Path, device: torch.device) -> None:
    made = batches(with_bad(tmp_path, {3: jpeg(3)[:-200]}), device, global_batch=COUNT)
    with pytest.raises(BadRecord, match=r"train-00000-of-00002: record 3 at byte .*Premature end"):
        collect(made, 0)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_skipped_image_is_named_and_replaced_by_the_mean_colour(
    tmp_path: Path, device: torch.device, network: str
) -> None:
    options: dict[str, Any] = {"global_batch": COUNT, "preprocess": network}
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    broken.mkdir()
    made = batches(with_bad(broken, {25: NO_JPEG}), device, on_bad_record="skip", **options)
    (batch,) = collect(made, 0)
    (name,) = made.skipped
    assert "train-00001-of-00002: record 5 at byte" in name
    assert "not a JPEG or PNG" in name
    (epoch,) = collect(batches(with_bad(sound, {}), device, **options), 0)
    bad = batch.index == 25
    assert batch.images[bad].abs().max() < 1e-4
    assert torch.equal(batch.images[~bad], epoch.images[~bad])
    collect(made, 1)
    assert len(made.skipped) == 1  # named once, however often it is met


def test_a_bad_image_that_stops_a_run_says_how_to_continue(tmp_path: Path, device: torch.device) -> None:
    write(tmp_path, "train", [20, 23], {7: NO_JPEG})
    write(tmp_path, "validation", [8])
    with pytest.raises(BadRecord) as stopped:
        collect(batches(tmp_path, device), 0)
    message = str(stopped.value)
    assert "record 7" in message
    assert "--on-bad-record skip continues, with a plain mean-colour image in place of each such record" in message
    assert f"viaduct data check {tmp_path} --deep" in message


def test_an_image_of_too_many_pixels_is_named_with_its_record(tmp_path: Path, device: torch.device) -> None:
    claim = bytearray(jpeg(0))
    size = claim.index(b"\xff\xc0") + 5  # height and width, two bytes each, in the frame header
    claim[size : size + 4] = b"\x14\x00\x14\x00"
    folder = with_bad(tmp_path, {25: bytes(claim)})
    with pytest.raises(BadRecord, match=r"train-00001-of-00002: record 5 at byte [\d,]+: the JPEG .* pixels"):
        collect(batches(folder, device, global_batch=COUNT), 0)


def test_too_many_bad_images_stop_even_a_run_that_skips(tmp_path: Path, device: torch.device) -> None:
    made = batches(with_bad(tmp_path, {7: NO_JPEG, 25: NO_JPEG}), device, on_bad_record="skip")
    message = r"2 of 43 records are bad so far; at most 1 may be \(0\.1 %, and never fewer than one\)"
    with pytest.raises(BadData, match=message) as caught:
        collect(made, 0)
    assert caught.value.hints[-1].startswith(f"`viaduct data check {tmp_path} --deep` counts all of them")
    assert len(made.skipped) == 2


def test_as_many_bad_images_are_counted_as_were_named(
    tmp_path: Path, device: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_bad(tmp_path, dict.fromkeys(range(COUNT), NO_JPEG))
    made = batches(folder, device, global_batch=COUNT, workers=4, on_bad_record="skip")
    with pytest.raises(BadData, match="2 of 43 records are bad so far"):
        collect(made, 0)
    assert len(capsys.readouterr().err.splitlines()) == len(made.skipped) == 2


def test_a_corrupt_record_stops_with_file_record_and_reason(tmp_path: Path, device: torch.device) -> None:
    flip(with_bad(tmp_path, {}) / "train-00001-of-00002", 4)
    reason = r"train-00001-of-00002: record 4 at byte \d[\d,]*: the checksum of its data is wrong"
    with pytest.raises(BadRecord, match=reason):
        collect(batches(tmp_path, device, global_batch=COUNT), 0)


def test_a_record_damaged_after_indexing_stops_the_same_way(tmp_path: Path, device: torch.device) -> None:
    made = batches(with_bad(tmp_path, {}), device, global_batch=COUNT)
    collect(made, 0)
    flip(tmp_path / "train-00001-of-00002", 4)
    with pytest.raises(BadRecord, match=r"train-00001-of-00002: record 4 at byte .*checksum of its data"):
        collect(made, 1)


def test_a_corrupt_record_is_skipped_and_named(tmp_path: Path, device: torch.device) -> None:
    flip(with_bad(tmp_path, {}) / "train-00001-of-00002", 4)
    made = batches(tmp_path, device, global_batch=COUNT, on_bad_record="skip")
    (batch,) = collect(made, 0)
    assert batch.images[batch.index == 24].abs().max() < 1e-4
    assert batch.labels[batch.index != 24].tolist() == [n % 3 + 1 for n in batch.index.tolist() if n != 24]
    assert [("record 4 at byte" in name, "checksum" in name) for name in made.skipped] == [(True, True)]


def test_the_labels_of_a_split_with_a_corrupt_record_are_read_once(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(with_bad(tmp_path, {}) / "train-00001-of-00002", 4)
    skipping = replace(RECORDS, on_bad_record="skip")
    first = skipping.load(tmp_path).train.labels
    assert first[24] == 0
    with monkeypatch.context() as patch:
        patch.setattr(RecordFolder, "read_record", lambda self, number: pytest.fail("a record was read again"))
        assert np.array_equal(skipping.load(tmp_path).train.labels, first)
    with pytest.raises(BadRecord, match=r"train-00001-of-00002: record 4 at byte .*checksum of its data"):
        _ = RECORDS.load(tmp_path).train.labels


def test_skipped_records_are_named_on_stderr(
    tmp_path: Path, device: torch.device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viaduct.data.record_batches.MAX_BAD_SHARE", 0.5)
    folder = with_bad(tmp_path, dict.fromkeys(range(12), NO_JPEG))
    made = batches(folder, device, global_batch=COUNT, on_bad_record="skip")
    collect(made, 0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"replaced: {folder}/train-0000") for line in lines[:10]] == [True] * 10
    assert lines[10:] == [
        "replaced: any more are counted at the end; the report names them all",
        "replaced: 12 of 43 records in all",
    ]
    assert len(made.skipped) == 12


def test_two_corrupt_records_stop_even_a_run_that_skips(tmp_path: Path, device: torch.device) -> None:
    flip(with_bad(tmp_path, {}) / "train-00000-of-00002", 2)
    flip(tmp_path / "train-00001-of-00002", 4)
    with pytest.raises(BadData, match="2 of 43 records are bad"):
        collect(batches(tmp_path, device, global_batch=COUNT, on_bad_record="skip"), 0)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_policy_is_a_function_of_the_position_alone(folder: Path, device: torch.device, network: Any) -> None:
    options: dict[str, Any] = {"auto_augment": "imagenet", "preprocess": network}
    epoch = collect(batches(folder, device, **options), 2)
    assert_same(collect(batches(folder, device, workers=1, **options), 2, start=2), epoch[2:])
    plain = collect(batches(folder, device, preprocess=network), 2)
    assert indices(plain) == indices(epoch)
    assert not any(torch.equal(first.images, second.images) for first, second in zip(plain, epoch, strict=True))
    evaluated = [
        collect(batches(folder, device, train=False, **more), 0) for more in (options, {"preprocess": network})
    ]
    assert_same(*evaluated)


@pytest.mark.parametrize("network", ["official", "resnext"])
def test_increased_colours_change_training_and_nothing_else(folder: Path, device: torch.device, network: str) -> None:
    strong = {"increased_aug": "on", "brightness": 30.0, "contrast": 0.2, "saturation": 0.2, "hue": 0.5}
    found = {
        name: collect(batches(folder, device, preprocess=network, **options), 2)
        for name, options in {"reference": {}, "off": {"increased_aug": "off"}, "on": strong}.items()
    }
    assert_same(collect(batches(folder, device, preprocess=network, workers=1, **strong), 2, start=2), found["on"][2:])
    assert indices(found["on"]) == indices(found["reference"])
    assert not torch.equal(found["on"][0].images, found["off"][0].images)
    # ResNeXt's reference varies colours by itself, the official one does not.
    assert torch.equal(found["off"][0].images, found["reference"][0].images) == (network == "official")
    evaluated = [collect(batches(folder, device, train=False, preprocess=network, **more), 0) for more in (strong, {})]
    assert_same(*evaluated)


def test_colour_ranges_without_effect_are_refused(folder: Path) -> None:
    for field, value in (("brightness", 3.0), ("contrast", 0.5), ("saturation", 0.5), ("hue", 0.2)):
        with pytest.raises(BadValue, match=rf"data.{field}={value:g} has no effect[\s\S]*--increased-aug on"):
            replace(RECORDS, **{field: value}).load(folder)
        with pytest.raises(BadValue, match=rf"data.{field} is -.*; it must be from 0 to"):
            replace(RECORDS, increased_aug="on", **{field: -value})
