"""Building records: every image once, the same bytes always, whatever happens on the way."""

from __future__ import annotations

import gzip
import io
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from data.decoded_examples import decode_example
from data.image_sources import JPEG, make_folders, make_idx, make_list
from data.record_files import png
from viaduct.data import build as build_module
from viaduct.data.build import build_records
from viaduct.data.index import RecordFolder
from viaduct.data.origins import find_origin, open_class_folders, open_idx_files
from viaduct.data.tfrecord import RecordWriter, read_records
from viaduct.errors import BadData, BadValue, DiskFull


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def contents(folder: Path, split: str) -> list[dict[str, object]]:
    return [decode_example(data) for file in sorted(folder.glob(f"{split}-*-of-*")) for data in read_records(file)]


def test_every_image_is_stored_once_as_it_is(photos: Path, tmp_path: Path) -> None:
    built = build_records(photos, tmp_path / "records", train_shards=3)
    examples = [*contents(built.folder, "train"), *contents(built.folder, "validation")]
    assert len(examples) == built.train + built.validation == 32
    labels = {"ant": 1, "bee": 2, "cat": 3, "dog": 4}
    assert built.labels == labels
    for example in examples:
        source = photos / example["image/filename"][0].decode()
        assert example["image/encoded"] == [source.read_bytes()]
        assert example["image/class/text"] == [source.parent.name.encode()]
        assert example["image/class/label"].tolist() == [labels[source.parent.name]]
        assert example["image/format"] == [b"PNG" if source.suffix == ".png" else b"JPEG"]
    assert len({example["image/filename"][0] for example in examples}) == 32


def test_a_build_writes_shards_labels_and_manifest(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records", train_shards=3, validation_shards=2)
    assert sorted(snapshot(tmp_path / "records")) == [
        "build.json",
        "labels.txt",
        "train-00000-of-00003",
        "train-00001-of-00003",
        "train-00002-of-00003",
        "validation-00000-of-00002",
        "validation-00001-of-00002",
    ]
    assert (tmp_path / "records/labels.txt").read_text() == "1:ant\n2:bee\n3:cat\n4:dog\n"
    assert RecordFolder(tmp_path / "records").names == {1: "ant", 2: "bee", 3: "cat", 4: "dog"}


def test_the_same_share_of_every_class_is_set_aside(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records", validation_share=0.25)
    counts = Counter(example["image/class/text"][0] for example in contents(tmp_path / "records", "validation"))
    assert counts == {b"ant": 5, b"bee": 2, b"cat": 1}, "a class of one only trains"
    build_records(photos, tmp_path / "all", validation_share=0)
    assert not list((tmp_path / "all").glob("validation*"))


def test_folders_of_a_split_are_used(tmp_path: Path) -> None:
    make_folders(tmp_path / "photos/train")
    make_folders(tmp_path / "photos/val", {"bee": 3}, first=500)
    built = build_records(tmp_path / "photos", tmp_path / "records")
    assert (built.train, built.validation) == (32, 3)
    names = [example["image/filename"][0] for example in contents(tmp_path / "records", "validation")]
    assert sorted(names) == [b"val/bee/0500.JPEG", b"val/bee/0501.png", b"val/bee/0502.JPEG"]


def test_labels_from_zero_and_numbers_in_their_order(tmp_path: Path) -> None:
    make_folders(tmp_path / "photos", {"10": 2, "2": 2, "0": 2})
    assert build_records(tmp_path / "photos", tmp_path / "a").labels == {"0": 1, "2": 2, "10": 3}
    assert build_records(tmp_path / "photos", tmp_path / "b", first_label=0).labels == {"0": 0, "2": 1, "10": 2}


def test_the_order_is_shuffled_by_the_seed(photos: Path, tmp_path: Path) -> None:
    for seed, out in ((0, "a"), (0, "b"), (1, "c")):
        build_records(photos, tmp_path / out, seed=seed)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")
    labels = [example["image/class/label"][0] for example in contents(tmp_path / "a", "train")]
    assert labels != sorted(labels)
    assert [example["image/filename"] for example in contents(tmp_path / "c", "train")] != [
        example["image/filename"] for example in contents(tmp_path / "a", "train")
    ]


def test_another_number_of_threads_changes_nothing(photos: Path, tmp_path: Path) -> None:
    for workers in (1, 7):
        build_records(photos, tmp_path / str(workers), train_shards=9, workers=workers)
    assert snapshot(tmp_path / "1") == snapshot(tmp_path / "7")


def test_progress_counts_images(photos: Path, tmp_path: Path) -> None:
    seen = []
    build_records(photos, tmp_path / "records", train_shards=4, on_progress=lambda *numbers: seen.append(numbers))
    assert seen == [(done, 32) for done in range(33)]
    (tmp_path / "records/train-00001-of-00004").unlink()
    seen.clear()
    built = build_records(photos, tmp_path / "records", train_shards=4, on_progress=lambda *n: seen.append(n))
    assert seen[0][0] > 20
    assert seen[-1] == (32, 32)
    assert (built.written, built.kept) == (1, 4)


def test_shards_are_as_large_as_wanted(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "SHARD_BYTES", 500)
    build_records(photos, tmp_path / "records", validation_shards=1000)
    assert len(list((tmp_path / "records").glob("train-*"))) > 3
    assert len(list((tmp_path / "records").glob("validation-*"))) == 4, "no shard without images"


KILLED = """
import sys
from viaduct.data.build import build_records
def wait_for_leave(done, total):
    print(flush=True)
    sys.stdin.readline()
build_records(sys.argv[1], sys.argv[2], train_shards=12, workers=3, on_progress=wait_for_leave)
"""


def build_and_kill(photos: Path, out: Path, images: int) -> int:
    """Start a build in a process of its own and kill it after so many images; its exit status."""
    command = [sys.executable, "-c", KILLED, str(photos), str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(images):
            process.stdout.readline()
            process.stdin.write(b"\n")
        process.stdout.readline()
        process.kill()
    return process.returncode


def test_a_killed_build_continues_to_the_same_bytes(tmp_path: Path) -> None:
    photos = make_folders(tmp_path / "photos", {"ant": 150, "bee": 150})
    out = tmp_path / "killed"
    statuses = [build_and_kill(photos, out, images) for images in (1, 30, 77, 5, 80)]
    assert statuses == [-signal.SIGKILL] * 5
    assert list(out.glob(".*.part")), "it was killed in the middle of a shard"
    built = build_records(photos, out, train_shards=12)
    build_records(photos, tmp_path / "undisturbed", train_shards=12)
    assert built.kept > 0
    assert built.written > 0
    assert snapshot(out) == snapshot(tmp_path / "undisturbed")


def test_a_failure_leaves_only_complete_shards(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = RecordWriter.write, []

    def fill_up(writer: RecordWriter, data: bytes) -> None:
        written.append(data)
        if len(written) > 20:
            raise OSError(28, "No space left on device")
        write(writer, data)

    with monkeypatch.context() as patched:
        patched.setattr(RecordWriter, "write", fill_up)
        with pytest.raises(DiskFull, match="run the same build again"):
            build_records(photos, tmp_path / "records", train_shards=8, workers=2)
    assert not list((tmp_path / "records").glob(".*"))
    build_records(photos, tmp_path / "records", train_shards=8)
    build_records(photos, tmp_path / "undisturbed", train_shards=8)
    assert snapshot(tmp_path / "records") == snapshot(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda photos: (photos / "bee/new.png").write_bytes(png(77)), "32 images, now 33; .* bytes, now"),
        (
            lambda photos: (photos / "ant/0000.JPEG").write_bytes(JPEG + b"1"),
            "but other names, classes, sizes or modification times",
        ),
        (lambda photos: make_folders(photos, {"emu": 1}, first=900), "4 classes, now 5"),
    ],
)
def test_changed_images_are_refused(photos: Path, tmp_path: Path, change, message: str) -> None:
    build_records(photos, tmp_path / "records")
    change(photos)
    with pytest.raises(BadData, match=f"the images have changed since this build began: .*{message}"):
        build_records(photos, tmp_path / "records")


def test_a_manifest_without_counts_is_refused(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    (tmp_path / "records/build.json").write_text('{"source": {}}')
    with pytest.raises(BadData, match="the images have changed since this build began"):
        build_records(photos, tmp_path / "records")


def test_a_build_that_an_earlier_version_began_is_continued(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    manifest = tmp_path / "records/build.json"
    manifest.write_text(manifest.read_text().replace('"images"', '"pictures"'))
    assert '"pictures"' in manifest.read_text()
    build_records(photos, tmp_path / "records")


def test_other_options_are_refused(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    with pytest.raises(BadData, match="began with other options: seed 0, now 1, train_shards 1, now 2"):
        build_records(photos, tmp_path / "records", seed=1, train_shards=2)


def test_other_records_are_not_overwritten(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "imagenet"
    out.mkdir()
    (out / "train-00000-of-01024").write_bytes(b"precious")
    with pytest.raises(BadData, match=r"it already has records, but no build\.json: train-00000-of-01024"):
        build_records(photos, out)
    assert snapshot(out) == {"train-00000-of-01024": b"precious"}


def test_a_folder_with_other_files_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "runs/first").mkdir(parents=True)
    with pytest.raises(BadData, match="runs: it has other files: first"):
        build_records(photos, tmp_path / "runs")
    assert [path.name for path in (tmp_path / "runs").rglob("*")] == ["first"]


def test_an_empty_folder_with_hidden_files_is_built_into(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records/.gitkeep").touch()
    assert build_records(photos, tmp_path / "records").written


def test_two_builds_at_once(photos: Path, tmp_path: Path) -> None:
    refused = []

    def second(done: int, total: int) -> None:
        if done == 5:
            with pytest.raises(BadData, match="another process is writing to this folder"):
                build_records(photos, tmp_path / "records")
            refused.append(done)

    build_records(photos, tmp_path / "records", on_progress=second)
    assert refused == [5]


def test_files_that_are_no_images_are_named_before_anything_is_built(photos: Path, tmp_path: Path) -> None:
    (photos / "bee/notes.txt").write_text("not an image")
    (photos / "ant/page.jpg").write_text("<html>not found</html>")
    (photos / "ant/.DS_Store").write_text("hidden files are passed over")
    with pytest.raises(BadData, match=r"2 files are neither JPEG nor PNG: ant/page\.jpg, bee/notes\.txt"):
        build_records(photos, tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_an_image_that_changes_during_the_build(photos: Path, tmp_path: Path) -> None:
    origin = open_class_folders(photos)
    (photos / "ant/0000.JPEG").write_bytes(JPEG + b"longer than it was")
    with pytest.raises(BadData, match=r"ant/0000\.JPEG: it has changed since the images were listed: 37 bytes, now 54"):
        build_records(origin, tmp_path / "records")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_share": 1.0}, "validation_share must be from 0 to less than 1, got 1.0"),
        ({"first_label": -1}, "first_label must be 1 or 0, got -1"),
        ({"first_label": 2}, "first_label must be 1 or 0, got 2"),
        ({"train_shards": 0}, "train_shards must be from 1 to 99,999, got 0"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_options_out_of_range(photos: Path, tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        build_records(photos, tmp_path / "records", **options)


def test_unusable_output_folders_are_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be written into the folder they are built from"):
        build_records(photos, photos / "records")
    with pytest.raises(BadData, match="There is no such file or folder"):
        find_origin(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(BadData, match="file: it is a file, and records go into a folder"):
        build_records(photos, tmp_path / "file")
    with pytest.raises(BadData, match=r"file/records: could not be written to: Not a directory\."):
        build_records(photos, tmp_path / "file" / "records")


def test_a_jpeg_that_is_cut_short_is_named_or_ends_the_build(tmp_path: Path) -> None:
    encoded = simplejpeg.encode_jpeg(np.zeros((16, 16, 3), np.uint8))
    (tmp_path / "photos/ant").mkdir(parents=True)
    for name, content in {"1": encoded, "2": encoded[:-2], "3": encoded + b"more", "4": encoded[:-9]}.items():
        (tmp_path / f"photos/ant/{name}.jpg").write_bytes(content)
    built = build_records(tmp_path / "photos", tmp_path / "records")
    assert built.truncated == ["ant/2.jpg", "ant/4.jpg"]
    assert built.train + built.validation == 4
    with pytest.raises(BadData, match=r"photos: ant/[24].jpg: the JPEG is cut short: it has no end marker"):
        build_records(tmp_path / "photos", tmp_path / "strict", strict=True)


def test_strict_looks_into_the_files_of_an_earlier_build(tmp_path: Path) -> None:
    encoded = simplejpeg.encode_jpeg(np.zeros((16, 16, 3), np.uint8))
    photos = tmp_path / "photos"
    (photos / "ant").mkdir(parents=True)
    for name, content in {"whole": encoded, "cut": encoded[:-2]}.items():
        (photos / f"ant/{name}.jpg").write_bytes(content)
    built = build_records(photos, tmp_path / "records")
    assert built.truncated == ["ant/cut.jpg"]
    with pytest.raises(BadData, match=r"ant/cut.jpg: the JPEG is cut short"):
        build_records(photos, tmp_path / "records", strict=True)


def test_a_build_of_another_version_is_refused_by_its_version(photos: Path, tmp_path: Path) -> None:
    build_records(photos, tmp_path / "records")
    manifest = tmp_path / "records/build.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(BadData, match=r"other options: build\.json of version 2, now 1"):
        build_records(photos, tmp_path / "records")


def test_a_list_of_paths_and_class_names(photos: Path, tmp_path: Path) -> None:
    list_file = make_list(
        photos, "path,label", "ant/0000.JPEG,insect", '"bee/0021.png", insect', "cat/0030.JPEG,pet", ""
    )
    built = build_records(list_file, tmp_path / "records", validation_share=0)
    assert (built.train, built.labels) == (3, {"insect": 1, "pet": 2})


def test_a_list_of_numbers_keeps_them(photos: Path, tmp_path: Path) -> None:
    list_file = make_list(photos, "ant/0000.JPEG,1000", "bee/0021.png,7", "cat/0030.JPEG,0")
    with pytest.raises(BadValue, match=r"its labels begin with 0, but first_label is 1\.\n  .*give first_label 0"):
        build_records(list_file, tmp_path / "records")
    built = build_records(list_file, tmp_path / "records", first_label=0)
    assert built.labels == {"0": 0, "7": 7, "1000": 1000}


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress])
def test_idx_files_become_grey_pngs(tmp_path: Path, pack) -> None:
    images, labels, pixels = make_idx(tmp_path, 12, pack)
    origin = open_idx_files(
        images, labels, validation=make_idx(tmp_path, 4, pack)[:2], names=("shirt", "coat", "bag", "shoe")
    )
    built = build_records(origin, tmp_path / "records")
    assert (built.train, built.validation) == (12, 4)
    assert built.labels == {"shirt": 1, "coat": 2, "bag": 3, "shoe": 4}
    for example in contents(tmp_path / "records", "train"):
        position = int(example["image/filename"][0][2:])
        assert example["image/class/label"].tolist() == [position % 4 + 1]
        assert decode_grey_png(example["image/encoded"][0]).tolist() == pixels[position].tolist()


def decode_grey_png(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        return np.array(image)


def test_tensorflow_reads_what_was_built(photos: Path, tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is the extra `tf`")
    build_records(photos, tmp_path / "records", train_shards=2)
    files = sorted(str(path) for path in (tmp_path / "records").glob("train-*-of-*"))
    schema = {
        "image/encoded": tensorflow.io.FixedLenFeature([], tensorflow.string),
        "image/class/label": tensorflow.io.FixedLenFeature([], tensorflow.int64),
        "image/class/text": tensorflow.io.FixedLenFeature([], tensorflow.string),
        "image/object/bbox/xmin": tensorflow.io.VarLenFeature(tensorflow.float32),
    }
    ours = contents(tmp_path / "records", "train")
    theirs = [tensorflow.io.parse_single_example(item, schema) for item in tensorflow.data.TFRecordDataset(files)]
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert our["image/encoded"] == [their["image/encoded"].numpy()]
        assert our["image/class/label"].tolist() == [their["image/class/label"].numpy()]
        assert our["image/class/text"] == [their["image/class/text"].numpy()]
