"""Checking records: what is an error, what is a warning, and that sound records have neither."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from data.record_files import message, png, write_split
from viaduct.data.check import MAX_FINDINGS_PER_FILE, CheckReport, check_records
from viaduct.data.example import encode_example
from viaduct.data.tfrecord import RecordWriter, frame_record
from viaduct.errors import BadData


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_split(tmp_path, "train", [6, 6])
    write_split(tmp_path, "validation", [3], first=100)
    (tmp_path / "labels.txt").write_text("1:ant\n2:bee\n3:cat\n")
    return tmp_path


def list_findings(report: CheckReport) -> list[tuple[str, str]]:
    return [(finding.severity, finding.kind) for finding in report.findings]


def only(folder: Path, **options: object) -> tuple[str, str, str]:
    """The single finding: severity and kind, where, message."""
    report = check_records(folder, **options)
    (finding,) = report.findings
    return f"{finding.severity}: {finding.kind}", finding.where, finding.message


def rewrite(path: Path, *messages: bytes) -> None:
    with RecordWriter(path) as writer:
        for text in messages:
            writer.write(text)


def test_sound_records_have_no_findings(folder: Path) -> None:
    seen = []
    report = check_records(folder, on_progress=lambda *numbers: seen.append(numbers))
    assert report.findings == []
    assert [(shard.split, shard.records, shard.record_errors) for shard in report.shards] == [
        ("train", 6, 0),
        ("train", 6, 0),
        ("validation", 3, 0),
    ]
    assert report.count_labels("train") == {1: 4, 2: 4, 3: 4}
    assert seen[-1][0] == seen[-1][1] == sum(shard.bytes for shard in report.shards)


def test_a_corrupt_record_and_the_ones_after_it(folder: Path) -> None:
    path = folder / "train-00001-of-00002"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    what, where, text = only(folder)
    assert (what, where) == ("error: corrupt", f"{path}: record 0 at byte 0")
    assert "the checksum of its data is wrong" in text
    assert check_records(folder).shards[1].records == 6


def test_what_follows_a_wrong_length_counts_as_unchecked(folder: Path) -> None:
    path = folder / "train-00001-of-00002"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    assert "the checksum of its length is wrong" in only(folder)[2]
    assert only(folder)[2].endswith("; what follows it in the file was not checked.")


def test_a_truncated_file(folder: Path) -> None:
    path = folder / "train-00000-of-00002"
    path.write_bytes(path.read_bytes()[:-5])
    what, where, text = only(folder)
    assert what == "error: corrupt"
    assert "record 5 at byte" in where
    assert text.startswith("truncated: expected")
    assert "not checked" not in text


def test_a_record_of_another_schema(folder: Path) -> None:
    rewrite(
        folder / "validation-00000-of-00001",
        message(100, 1),
        encode_example({"x": 1}),
        message(101, 2),
        message(102, 3),
    )
    what, where, text = only(folder)
    assert what == "error: corrupt"
    assert "record 1 at byte" in where
    assert text == "image/encoded has 0 values, expected one."


@pytest.mark.parametrize(
    ("label", "options", "text"),
    [
        (4, {}, "its label 4 is not in labels.txt, which has 1 to 3."),
        (-1, {}, "its label is -1."),
        (3, {"classes": 2}, "its label is 3, where 2 classes have 1 to 2."),
    ],
)
def test_a_label_outside_of_the_classes(folder: Path, label: int, options: dict[str, int], text: str) -> None:
    rewrite(folder / "validation-00000-of-00001", message(100, 1), message(101, 2), message(102, label))
    findings = check_records(folder, **options).errors
    assert findings[-1].kind == "mislabelled"
    assert findings[-1].message == text


def test_an_image_that_is_none(folder: Path) -> None:
    odd = encode_example({"image/encoded": b"GIF89a", "image/class/label": 1})
    rewrite(folder / "validation-00000-of-00001", odd, message(101, 2), message(102, 3))
    what, _, text = only(folder)
    assert what == "error: undecodable"
    assert text == "its image is neither JPEG nor PNG: b'GIF89a'."


def test_deep_decodes_every_image(folder: Path) -> None:
    seen = []

    def decode(content: bytes) -> None:
        seen.append(content)
        if content == png(7):
            raise RuntimeError("premature\n  end of file")

    what, where, text = only(folder, deep=True, decode=decode)
    assert (what, text) == ("error: undecodable", "its image cannot be decoded: premature end of file.")
    assert "train-00001-of-00002: record 1 at byte" in where
    assert len(seen) == 15
    with pytest.raises(ValueError, match="needs a function"):
        check_records(folder, deep=True)


def test_many_bad_records_are_counted_not_listed(folder: Path) -> None:
    rewrite(folder / "validation-00000-of-00001", *(message(number, 9) for number in range(100, 150)))
    report = check_records(folder)
    assert report.shards[2].mislabelled == 50
    assert len(report.errors) == MAX_FINDINGS_PER_FILE + 1
    assert "its records have 50 problems" in report.errors[-1].message


def test_a_missing_file_of_the_set(folder: Path) -> None:
    (folder / "train-00001-of-00002").unlink()
    what, where, text = only(folder)
    assert (what, where) == ("error: incomplete", "train")
    assert "1 of the 2 train files are missing: train-00001-of-00002" in text


def test_what_is_only_a_warning(folder: Path) -> None:
    (folder / "labels.txt").unlink()
    rewrite(
        folder / "train-00000-of-00002", *(message(number, 1) for number in range(40)), message(3, 1), message(100, 2)
    )
    report = check_records(folder)
    assert report.errors == []
    assert sorted(kind for _, kind in list_findings(report)) == [
        "duplicates",
        "duplicates",
        "imbalance",
        "labels.txt",
        "shard sizes",
    ]
    texts = " ".join(finding.message for finding in report.findings)
    assert "1 has 43 images, 3 2." in texts
    assert "7 of 48 images are copies of another one" in texts
    assert "1 validation images are also training images" in texts


def test_every_copy_of_a_training_image_counts(folder: Path) -> None:
    rewrite(folder / "validation-00000-of-00001", message(0, 1), message(0, 1))
    texts = [finding.message for finding in check_records(folder).findings]
    assert "2 validation images are also training images; the accuracy will look too good." in texts


def test_a_class_without_images(folder: Path) -> None:
    (folder / "labels.txt").write_text("0:background\n1:ant\n2:bee\n3:cat\n4:dog\n")
    report = check_records(folder)
    assert list_findings(report) == [("warning", "imbalance")] * 2
    assert report.findings[0].message == "1 classes have no images: 4 (dog)."


def test_boxes_outside_of_the_image(folder: Path) -> None:
    sides = {f"image/object/bbox/{side}": [0.5] for side in ("xmin", "xmax", "ymin")}
    boxed = encode_example(
        {"image/encoded": png(300), "image/class/label": 1, "image/object/bbox/ymax": [1.5], **sides}
    )
    rewrite(folder / "validation-00000-of-00001", boxed, message(101, 2), message(102, 3))
    what, where, text = only(folder)
    assert (what, text) == ("warning: boxes", "a box extends beyond the image or has its corners swapped.")
    assert where.endswith("record 0 at byte 0")


def test_many_warnings_do_not_hide_an_error(folder: Path) -> None:
    sides = {f"image/object/bbox/{side}": [0.5] for side in ("xmin", "xmax", "ymin")}
    boxed = [
        encode_example(
            {"image/encoded": png(300 + n), "image/class/label": n % 3 + 1, "image/object/bbox/ymax": [1.5], **sides}
        )
        for n in range(MAX_FINDINGS_PER_FILE + 1)
    ]
    rewrite(folder / "validation-00000-of-00001", *boxed, message(101, 9))
    report = check_records(folder)
    assert [finding.kind for finding in report.errors] == ["mislabelled"]
    assert list_findings(report).count(("warning", "boxes")) == MAX_FINDINGS_PER_FILE + 1
    assert any(
        finding.message == "21 of its records have such boxes; the first 20 are named." for finding in report.findings
    )


def test_a_compressed_and_an_empty_file(folder: Path) -> None:
    path = folder / "validation-00000-of-00001"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert only(folder)[0] == "error: compressed"  # training would refuse it
    path.write_bytes(b"")
    assert ("warning", "empty") in list_findings(check_records(folder))
    assert ("error", "empty") in list_findings(check_records(folder))  # the only file of its split


def test_one_empty_file_of_several_is_a_warning(folder: Path) -> None:
    (folder / "train-00001-of-00002").write_bytes(b"")
    report = check_records(folder)
    assert ("warning", "empty") in list_findings(report)
    assert report.errors == []


def test_without_training_files_there_is_nothing_to_train_on(folder: Path) -> None:
    for path in folder.glob("train-*"):
        path.unlink()
    assert ("error", "empty") in list_findings(check_records(folder))


def test_a_folder_without_validation_files_is_a_warning(folder: Path) -> None:
    (folder / "validation-00000-of-00001").unlink()
    what, where, text = only(folder)
    assert (what, where) == ("warning: empty", "validation")
    assert text == "there are no validation files."


@pytest.mark.parametrize(("classes", "kinds"), [(3, [("warning", "classes")]), (4, []), (1001, [])])
def test_classes_may_count_the_spare_output_or_not(folder: Path, classes: int, kinds: list[tuple[str, str]]) -> None:
    report = check_records(folder, classes=classes)
    assert list_findings(report) == kinds
    for finding in report.findings:
        assert "a recipe needs data.classes=4, or data.label_shift=-1 with 3" in finding.message


def test_labels_from_zero_on_are_one_more_class(folder: Path) -> None:
    (folder / "labels.txt").unlink()
    rewrite(folder / "validation-00000-of-00001", message(100, 0), message(101, 2), message(102, 3))
    assert ("error", "mislabelled") in list_findings(check_records(folder, classes=3))
    assert check_records(folder, classes=4).errors == []
    (folder / "labels.txt").write_text("0:none\n1:ant\n2:bee\n3:cat\n")
    (error, *_) = check_records(folder, classes=3).errors
    assert error.message == "its label is 3, where 3 classes have 0 to 2."


def test_no_records_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="there are no train records"):
        check_records(tmp_path)
    with pytest.raises(BadData, match="there is no such folder"):
        check_records(tmp_path / "nowhere")


def test_labels_that_cannot_be_read_are_a_warning(folder: Path) -> None:
    (folder / "labels.txt").write_bytes(b"\xff")
    assert only(folder)[0] == "warning: labels.txt"


def test_a_file_that_is_no_record_file(folder: Path) -> None:
    (folder / "validation-00000-of-00001").write_bytes(b"hello, this is text" + frame_record(b""))
    assert "the checksum of its length is wrong" in only(folder)[2]
