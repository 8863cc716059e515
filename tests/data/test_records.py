"""Records as a part of a recipe: what is loaded, what is refused, and what the user sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.record_files import message, write_split
from viaduct.data.example import encode_example
from viaduct.data.preprocess import prepare_image
from viaduct.data.records import Records
from viaduct.data.tfrecord import BadRecord, RecordWriter
from viaduct.errors import BadData

RECORDS = Records(global_batch=4, size=8, classes=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_split(tmp_path, "train", [5, 6])
    write_split(tmp_path, "validation", [4], first=100)
    (tmp_path / "labels.txt").write_text("1:ant\n2:bee\n3:cat\n")
    return tmp_path


def test_without_a_path_the_error_asks_for_one() -> None:
    with pytest.raises(BadData, match=r"give their folder with --data DIR"):
        RECORDS.load(None)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"nowhere: there is no such folder"):
        RECORDS.load(tmp_path / "nowhere")


def test_a_folder_without_records_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadData, match=r"there are no train records[\s\S]*thesis\.tex"):
        RECORDS.load(tmp_path)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "train-00000-of-00002").unlink()
    with pytest.raises(BadData, match=r"1 of the 2 train files are missing: train-00000-of-00002"):
        RECORDS.load(folder)


def test_validation_records_are_needed_too(folder: Path) -> None:
    (folder / "validation-00000-of-00001").unlink()
    with pytest.raises(BadData, match="there are no validation records"):
        RECORDS.load(folder)


def test_labels_are_those_of_the_files(folder: Path) -> None:
    loaded = RECORDS.load(folder)
    assert (len(loaded.train), len(loaded.validation)) == (11, 4)
    assert loaded.train.labels.tolist() == [number % 3 + 1 for number in range(11)]
    assert loaded.validation.labels.tolist() == [number % 3 + 1 for number in range(100, 104)]
    assert loaded.names == ("0", "ant", "bee", "cat")


def test_labels_and_names_are_shifted_together(folder: Path) -> None:
    loaded = Records(global_batch=4, size=8, classes=3, label_shift=-1).load(folder)
    assert loaded.train.labels.tolist() == [number % 3 for number in range(11)]
    assert loaded.names == ("ant", "bee", "cat")


def test_without_a_list_of_names_the_numbers_are_the_names(folder: Path) -> None:
    (folder / "labels.txt").unlink()
    assert RECORDS.load(folder).names == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("classes", "shift", "record", "label"),
    [(3, 0, 2, 3), (4, 2, 1, 4), (4, -2, 0, -1)],
)
def test_a_label_outside_of_the_classes_is_refused(
    folder: Path, classes: int, shift: int, record: int, label: int
) -> None:
    loaded = Records(global_batch=4, size=8, classes=classes, label_shift=shift).load(folder)
    reason = rf"train-00000-of-00002: record {record} at byte \d+: its label {label} is not one of 0 to {classes - 1}\."
    with pytest.raises(BadRecord, match=reason):
        loaded.train.labels  # noqa: B018


def test_labels_that_begin_with_1_and_need_one_output_more_say_so(folder: Path) -> None:
    with pytest.raises(BadRecord) as caught:
        _ = Records(global_batch=4, size=8, classes=3).load(folder).train.labels
    (hint,) = caught.value.hints
    assert "no label 0" in hint
    assert hint.endswith("--classes 4, or --set data.label_shift=-1.")


def test_labels_that_are_simply_wrong_have_no_such_hint(folder: Path) -> None:
    with pytest.raises(BadRecord) as caught:
        _ = Records(global_batch=4, size=8, classes=2).load(folder).train.labels
    assert caught.value.hints == ()


def test_a_wrong_label_in_a_later_file_is_numbered_within_that_file(folder: Path) -> None:
    with RecordWriter(folder / "train-00001-of-00002") as writer:
        writer.write(message(5, 1))
        writer.write(message(6, 9))
    with pytest.raises(BadRecord, match=r"train-00001-of-00002: record 1 at byte \d+: its label 9 "):
        RECORDS.load(folder).train.labels  # noqa: B018


@pytest.mark.parametrize("network", ["official", "v15", "resnext", "amoebanet"])
def test_an_image_for_display_is_the_input_of_evaluation_in_bytes(folder: Path, network: str) -> None:
    split = Records(global_batch=4, size=8, classes=4, preprocess=network).load(folder).validation
    shown = split.read_image(2)
    assert (shown.dtype, shown.shape) == (np.uint8, (8, 8, 3))
    assert np.abs(shown - prepare_image(network, split.folder.read_fields(2).encoded, size=8)).max() <= 0.5


def test_a_bad_image_is_named_or_skipped(folder: Path) -> None:
    with RecordWriter(folder / "validation-00000-of-00001") as writer:
        writer.write(message(100, 1))
        writer.write(encode_example({"image/encoded": b"no image", "image/class/label": 1}))
    with pytest.raises(BadRecord, match=r"validation-00000-of-00001: record 1 at byte \d+: not a JPEG or PNG"):
        RECORDS.load(folder).validation.read_image(1)
    shown = replace(RECORDS, on_bad_record="skip").load(folder).validation.read_image(1)
    assert shown.dtype == np.uint8
    assert (shown == (124, 117, 104)).all()
