"""MindRecord files without MindSpore: fields, splits, damage, and the same images as from TFRecords."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from data.mindrecord_files import HEADER, write_mindrecord
from data.mutations import mutate
from forked_viaduct import viaduct
from viaduct.data.check import check_records
from viaduct.data.index import RecordFolder
from viaduct.data.mindrecord import MindRecordFile, is_mindrecord
from viaduct.data.mindrecord_folder import find_kind, open_mindrecord_splits, split_files
from viaduct.data.records import Records
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData, BadValue, ViaductError

SCHEMA = {"file_name": {"type": "string"}, "label": {"type": "int32"}, "data": {"type": "bytes"}}


def jpeg(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


def rows(count: int, classes: int = 3) -> list[dict[str, Any]]:
    return [{"file_name": f"{n}.jpg", "label": n % classes, "data": jpeg(n)} for n in range(count)]


def load(path: Path, **settings: Any) -> Any:
    return Records(global_batch=4, size=32, **{"classes": 4, **settings}).load(path)


def test_rows_are_read_at_random_without_the_index_file(tmp_path: Path) -> None:
    wanted = rows(60)
    file = MindRecordFile(write_mindrecord(tmp_path / "a.mindrecord", SCHEMA, wanted))
    assert (len(file), str(file.schema["data"]), file.blob_fields) == (60, "bytes", ["data"])
    for row in (59, 0, 31, 7):
        assert bytes(file.read_blob(row, "data")) == wanted[row]["data"]
        assert file.read_values(row) == {"file_name": f"{row}.jpg", "label": row % 3}
    assert bytes(pickle.loads(pickle.dumps(file)).read_blob(8, "data")) == wanted[8]["data"]


def test_arrays_and_several_blobs_are_taken_apart(tmp_path: Path) -> None:
    arrays = {"box": {"type": "int64", "shape": [-1]}, "label": {"type": "int32", "shape": [1]}}
    stored = [{"box": [1, -2, 3 * n], "label": [n % 3], "image": jpeg(n)} for n in range(30)]
    write_mindrecord(tmp_path / "train.mindrecord", {**arrays, "image": {"type": "bytes"}}, stored)
    write_mindrecord(tmp_path / "val.mindrecord", {**arrays, "image": {"type": "bytes"}}, stored[:2])
    train, _ = open_mindrecord_splits(tmp_path)
    assert train is not None
    assert [train.read_fields(n).label for n in range(30)] == [n % 3 for n in range(30)]
    assert [bytes(train.read_fields(n).encoded) for n in range(30)] == [row["image"] for row in stored]


def test_splits_follow_from_names(tmp_path: Path) -> None:
    names = {
        "imagenet_train.mindrecord07": "train",
        "cifar10.mindrecord": "train",
        "cifar10.mindrecord_test": "test",
        "val.mindrecord": "val",
        "imagenet-validation0.mindrecord3": "val",
        "latest.mindrecord": "train",
        "eval_0.mindrecord": "eval",
    }
    assert {name: find_kind(Path(name)) for name in names} == names
    for name in ("train.mindrecord", "val.mindrecord", "test.mindrecord"):
        write_mindrecord(tmp_path / name, SCHEMA, rows(4))
        (tmp_path / f"{name}.db").write_bytes(b"SQLite format 3\0")
    found = {split: [file.name for file in files] for split, files in split_files(tmp_path).items()}
    assert found == {"train": ["train.mindrecord"], "validation": ["val.mindrecord"]}
    only = load(tmp_path / "val.mindrecord")
    assert not only.has_train
    with pytest.raises(BadData, match="no MindRecord files to train on"):
        _ = only.train


def test_a_set_of_files_is_one_sequence_and_must_be_complete(tmp_path: Path) -> None:
    stored, names = rows(30), [f"train.mindrecord{n}" for n in range(3)]
    for shard, name in enumerate(names):
        write_mindrecord(tmp_path / name, SCHEMA, stored[shard * 10 : shard * 10 + 10], names, shard)
    write_mindrecord(tmp_path / "val.mindrecord", SCHEMA, rows(5))
    images = load(tmp_path)
    assert (len(images.train), len(images.validation)) == (30, 5)
    assert images.train.labels.tolist() == [n % 3 for n in range(30)]
    assert bytes(images.train.folder.read_fields(25).encoded) == stored[25]["data"]
    (tmp_path / names[1]).unlink()
    for path in (tmp_path, tmp_path / names[0]):
        with pytest.raises(BadData, match="mindrecord1"):
            load(path)


def test_a_tenth_of_every_class_is_set_aside_where_there_is_no_validation(tmp_path: Path) -> None:
    write_mindrecord(tmp_path / "shapes.mindrecord", SCHEMA, rows(60))
    images = load(tmp_path / "shapes.mindrecord")
    assert (len(images.train), len(images.validation)) == (54, 6)
    assert sorted(images.validation.labels.tolist()) == [0, 0, 1, 1, 2, 2]
    again = load(tmp_path / "shapes.mindrecord")
    assert [again.validation.folder.describe_location(n) for n in range(6)] == [
        images.validation.folder.describe_location(n) for n in range(6)
    ]


def test_fields_of_another_schema_are_named(tmp_path: Path) -> None:
    schema = {"a": {"type": "bytes"}, "b": {"type": "bytes"}, "x": {"type": "int32"}, "y": {"type": "int64"}}
    stored = [{"a": b"no", "b": jpeg(n), "x": 7, "y": n % 2} for n in range(20)]
    path = write_mindrecord(tmp_path / "odd.mindrecord", schema, stored)
    with pytest.raises(
        BadData, match=r"several fields of bytes[\s\S]*a \(bytes\), b \(bytes\), x \(int32\)[\s\S]*image_field"
    ):
        load(path)
    with pytest.raises(BadValue, match=r"image_field='c' is not a field[\s\S]*It has: a \(bytes\)"):
        load(path, image_field="c")
    images = load(path, image_field="b", label_field="y")
    assert set(images.train.labels.tolist()) == {0, 1}
    assert images.train.read_image(0).shape == (32, 32, 3)
    words = write_mindrecord(
        tmp_path / "words.mindrecord", {"text": {"type": "string"}, "image": {"type": "bytes"}}, []
    )
    with pytest.raises(BadData, match=r"no field of int32 or int64 for the class\.\s+It has: text \(string\)"):
        load(words)
    with pytest.raises(BadValue, match=r"image_field is for MindRecord"):
        Records(global_batch=4, size=32, image_field="x").load(tmp_path / "nowhere")


def test_damage_is_named_with_file_and_byte(tmp_path: Path) -> None:
    intact = write_mindrecord(tmp_path / "a.mindrecord", SCHEMA, rows(60)).read_bytes()
    cases = {
        "cut short: page": intact[:-10],
        "cut short: its header": intact[:200],
        "is an encrypted MindRecord file": intact[:-7] + b"ENCRYPT",
        "its header is not JSON": intact[:100] + b"\0" + intact[101:],
        "version '9.0'": intact.replace(b'"version":"3.0"', b'"version":"9.0"'),
        "does not end within its page": intact[:HEADER] + b"\xff" * 8 + intact[HEADER + 8 :],
    }
    for reason, content in cases.items():
        (tmp_path / "a.mindrecord").write_bytes(content)
        with pytest.raises(BadData, match=reason) as error:
            load(tmp_path / "a.mindrecord")
        assert "a.mindrecord" in str(error.value)


def test_files_damaged_at_random_are_read_or_refused(tmp_path: Path) -> None:
    content = write_mindrecord(tmp_path / "a.mindrecord", SCHEMA, rows(6)).read_bytes().replace(b"\0" * 4000, b"")
    rng = random.Random(0)
    for _ in range(400):
        (tmp_path / "a.mindrecord").write_bytes(mutate(content[:3000], rng) + content[3000:])
        try:
            file = MindRecordFile(tmp_path / "a.mindrecord")
            for row in range(min(len(file), 10)):
                file.read_blob(row, "data")
                file.read_integer(row, "label")
        except ViaductError:
            pass


def test_only_mindrecord_files_are_recognised_as_such(tmp_path: Path) -> None:
    (tmp_path / "x.mindrecord").write_bytes(b"\0" * 100)
    (tmp_path / "short").write_bytes(b"1")
    assert not any(is_mindrecord(tmp_path / name) for name in ("x.mindrecord", "short", "nothing"))


def test_check_counts_and_names_what_is_bad(tmp_path: Path) -> None:
    stored = rows(10)
    stored[3]["data"] = b"no image at all"
    stored[4]["label"] = -5
    write_mindrecord(tmp_path / "train.mindrecord", SCHEMA, stored)
    write_mindrecord(tmp_path / "val.mindrecord", SCHEMA, rows(4))
    report = check_records(tmp_path)
    (train, _) = report.shards
    assert (train.records, train.undecodable, train.mislabelled, train.corrupt) == (10, 1, 1, 0)
    assert any("record 3 at byte" in finding.where and "made from 3.jpg" in finding.where for finding in report.errors)


def test_tfrecords_built_from_mindrecords_hold_the_same_images(tmp_path: Path) -> None:
    stored, source = rows(12), tmp_path / "theirs"
    source.mkdir()
    write_mindrecord(source / "train.mindrecord", SCHEMA, stored)
    write_mindrecord(source / "val.mindrecord", SCHEMA, rows(4))
    done = viaduct("data", "build", str(source), "--out", str(tmp_path / "records"), "--first-label", "0")
    assert done.returncode == 0, done.stderr
    folder = RecordFolder(tmp_path / "records", "train")
    built = {bytes(folder.read_fields(n).encoded): folder.read_fields(n).label for n in range(len(folder))}
    assert built == {row["data"]: row["label"] for row in stored}


@pytest.mark.lengthy
def test_a_network_trains_on_mindrecords_and_is_evaluated(tmp_path: Path) -> None:
    write_mindrecord(tmp_path / "train.mindrecord", SCHEMA, rows(16))
    write_mindrecord(tmp_path / "val.mindrecord", SCHEMA, rows(8))
    small = ("--set", "model=resnet20_quick", "--set", "data.size=32", "--set", "data.classes=4", "--batch", "8")
    run = tmp_path / "run"
    words = (
        "train",
        "resnet50_imagenet",
        "--data",
        str(tmp_path),
        "--run",
        str(run),
        "--device",
        "cpu",
        "--steps",
        "2",
    )
    done = viaduct(*words, *small)
    assert done.returncode == 0, done.stderr
    done = viaduct("evaluate", str(run), "--device", "cpu", "--json")
    assert '"count": 8' in done.stdout, done.stderr
    assert "begin with 0" in done.stderr


def test_a_row_without_a_readable_label_is_bad_though_its_image_is_sound(tmp_path: Path) -> None:
    stored = rows(12)
    stored[5]["label"] = "ant"
    write_mindrecord(tmp_path / "train.mindrecord", SCHEMA, stored)
    write_mindrecord(tmp_path / "val.mindrecord", SCHEMA, rows(4))
    reason = r"train\.mindrecord: record 5 at byte [\d,]+: its field 'label' is 'ant', expected a whole number"
    with pytest.raises(BadRecord, match=reason):
        load(tmp_path).train.folder.read_fields(5)
    skipping = Records(global_batch=12, size=32, classes=4, on_bad_record="skip")
    split = skipping.load(tmp_path).train
    with skipping.batches(split, device=torch.device("cpu"), train=True, seed=1) as made:
        (batch,) = [(batch.images.clone(), batch.labels, batch.index) for batch in made.epoch(0)]
    images, labels, index = batch
    assert images[index == 5].abs().max() < 1e-4
    assert labels[index == 5].tolist() == [0]
    assert len(made.skipped) == 1
    assert "record 5" in made.skipped[0]


def test_an_array_of_labels_that_is_cut_off_is_named_with_its_row(tmp_path: Path) -> None:
    schema = {"label": {"type": "int32", "shape": [1]}, "image": {"type": "bytes"}}
    stored: list[dict[str, Any]] = [{"label": [n % 3], "image": jpeg(n)} for n in range(4)]
    stored[2]["label"] = b"\0\0\0\1"  # one value, and then nothing
    file = MindRecordFile(write_mindrecord(tmp_path / "a.mindrecord", schema, stored))
    with pytest.raises(BadRecord, match=r"record 2 at byte [\d,]+: in its field 'label' an array .* does not end"):
        file.read_integer(2, "label")
