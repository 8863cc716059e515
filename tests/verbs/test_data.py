"""Output of `viaduct data`, and training on what it built."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from forked_viaduct import viaduct
from viaduct.data import png
from viaduct.data.example import decode_filename
from viaduct.data.tfrecord import read_records

CLASSES = ("ant", "bee")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def run_successfully(*words: str | Path, cwd: Path | None = None) -> str:
    answer = viaduct(*words, cwd=cwd)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def check_refusal(answer: subprocess.CompletedProcess[str], *fragments: str) -> None:
    assert answer.returncode == 2, answer.stderr
    assert "Traceback" not in answer.stderr
    for fragment in fragments:
        assert fragment in answer.stderr


def jpeg(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=90)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(40):
        path = folder / CLASSES[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(number))
    return folder


@pytest.fixture(scope="module")
def built(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "records"
    output = run_successfully("data", "build", photos, "--out", out, "--shards", "2")
    assert output == f"{out}: 36 training and 4 validation images of 2 classes, 3 files written\n"
    return out


@pytest.fixture
def records(built: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(built, tmp_path / "records"))


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "-of-" in path.name and not path.suffix)


def test_class_folders_are_built_and_a_second_build_writes_nothing(photos: Path, records: Path) -> None:
    assert shards(records) == ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]
    assert (records / "labels.txt").read_text() == "1:ant\n2:bee\n"
    output = run_successfully("data", "build", photos, "--out", records, "--shards", "2")
    assert "0 files written, 3 were there already" in output


def test_a_list_of_images_is_built(photos: Path, tmp_path: Path) -> None:
    lines = [f"{path},{path.parent.name}" for path in sorted(photos.rglob("*.jpg"))]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    output = run_successfully("data", "build", "list.csv", "--out", "records", "--first-label", "0", cwd=tmp_path)
    assert "36 training and 4 validation images of 2 classes" in output
    assert (tmp_path / "records/labels.txt").read_text() == "0:ant\n1:bee\n"


def idx_pair(folder: Path, name: str, count: int) -> tuple[Path, Path]:
    images, labels = folder / f"{name}-images", folder / f"{name}-labels"
    pixels = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    images.write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes())
    labels.write_bytes(struct.pack(">2I", 0x801, count) + bytes(number % 10 for number in range(count)))
    return images, labels


def test_the_files_of_mnist_are_built(tmp_path: Path) -> None:
    train, validation = idx_pair(tmp_path, "train", 30), idx_pair(tmp_path, "t10k", 10)
    out = tmp_path / "records"
    output = run_successfully("data", "build", "--idx", *train, "--idx-validation", *validation, "--out", out)
    assert "30 training and 10 validation images of 10 classes" in output
    assert "nothing wrong was found" in run_successfully("data", "check", out, "--deep")


def test_a_build_of_nothing_or_of_two_things_is_refused(photos: Path, tmp_path: Path) -> None:
    check_refusal(
        viaduct("data", "build", cwd=tmp_path), "viaduct data build: what shall be built?", "--idx IMAGES LABELS"
    )
    pair = idx_pair(tmp_path, "train", 1)
    both = viaduct("data", "build", photos, "--idx", *pair, cwd=tmp_path)
    check_refusal(both, "what shall be built?", f"Both {photos} and --idx {pair[0]} {pair[1]} were given")
    check_refusal(
        viaduct("data", "build", photos, "--idx-validation", *pair, cwd=tmp_path),
        "--idx-validation was given without --idx",
    )
    check_refusal(
        viaduct("data", "build", "--idx", *pair, "--ignore", "*.txt", cwd=tmp_path), "--ignore is for class folders"
    )
    check_refusal(viaduct("data", "build", "nowhere", cwd=tmp_path), "There is no such file or folder")
    assert not (tmp_path / "records").exists()


def test_mistakes_are_named_by_flag_and_reasons_have_no_numbers(photos: Path, tmp_path: Path) -> None:
    words = ("data", "build", photos, "--out", tmp_path / "out")
    check_refusal(
        viaduct(*words, "--validation-share", "2"), "viaduct data build: --validation-share must be from 0 to less"
    )
    check_refusal(viaduct(*words, "--shards", "0"), "--shards must be from 1 to 99,999, got 0")
    check_refusal(viaduct(*words, "--first-label", "-1"), "--first-label must be 1 or 0, got -1")
    check_refusal(viaduct(*words, "--first-label", "2"), "--first-label must be 1 or 0, got 2")
    (tmp_path / "out").touch()
    answer = viaduct(*words)
    check_refusal(answer, f"{tmp_path}/out: it is a file, and records go into a folder")
    assert "Errno" not in answer.stderr


def test_a_build_without_validation_images_warns(photos: Path, tmp_path: Path) -> None:
    answer = viaduct("data", "build", photos, "--out", tmp_path / "out", "--validation-share", "0")
    assert answer.returncode == 0
    assert answer.stderr == "warning: there are no validation images; training needs some to evaluate with.\n"


def test_a_build_passes_over_what_it_is_told_to_ignore(photos: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "photos"))
    (copy / "ant/notes.txt").write_text("not an image")
    (copy / "bee/list.log").write_text("not an image")
    words = ("data", "build", copy, "--out", tmp_path / "out")
    check_refusal(viaduct(*words), "ant/notes.txt", "--ignore '*.txt'")
    assert "36 training and 4 validation" in run_successfully(*words, "--ignore", "*.txt", "--ignore", "*.log")


def test_an_interrupted_build_says_that_it_can_go_on(photos: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, time\n"
        "from viaduct import cli\n"
        "from viaduct.data import build\n"
        "real, once = build.encode_example, threading.Lock()\n"
        "def interrupting(features):\n"
        "    if once.acquire(blocking=False):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.2)\n"
        "    return real(features)\n"
        "build.encode_example = interrupting\n"
        "cli.main()\n"
    )
    words = ["data", "build", str(photos), "--out", str(tmp_path / "out")]
    answer = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert answer.returncode not in (0, 2)
    assert f"stopped: the files in {tmp_path}/out are complete; the same command resumes" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "36 training" in run_successfully(*words)


def test_a_strict_build_ends_at_a_jpeg_that_is_cut_short(photos: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "photos"))
    (copy / "ant/00.jpg").write_bytes(jpeg(0)[:-2])
    check_refusal(
        viaduct("data", "build", copy, "--out", tmp_path / "out", "--strict"), "ant/00.jpg: the JPEG is cut short"
    )


def test_a_split_without_a_record_is_an_error(records: Path) -> None:
    (records / "validation-00000-of-00001").write_bytes(b"")
    answer = viaduct("data", "check", records)
    assert answer.returncode == 1
    assert "error: validation: there are no records in its 1 files." in answer.stdout


def test_sound_records_pass_the_check(built: Path) -> None:
    output = run_successfully("data", "check", built, "--deep")
    assert "nothing wrong was found\n" in output
    assert "images were not decoded" in run_successfully("data", "check", built)
    rows = json.loads(run_successfully("data", "check", built, "--json"))
    assert (rows["ok"], rows["findings"]) == (True, [])
    assert [(shard["file"], shard["corrupt"]) for shard in rows["shards"]] == [(name, 0) for name in shards(built)]
    assert sum(shard["records"] for shard in rows["shards"]) == 40


def spoil(path: Path) -> None:
    """Flip a bit in the first record."""
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)


def test_a_flipped_byte_is_found_and_its_file_named(records: Path) -> None:
    path = records / "train-00001-of-00002"
    spoil(path)
    answer = viaduct("data", "check", records)
    assert answer.returncode == 1
    assert re.search(
        rf"error: {path}: record 0 at byte 0 \(made from (ant|bee)/\d\d.jpg\): the checksum of", answer.stdout
    )
    answer = viaduct("data", "check", records, "--json")
    assert answer.returncode == 1
    rows = json.loads(answer.stdout)
    assert rows["ok"] is False
    assert [finding["kind"] for finding in rows["findings"]] == ["corrupt"]


def name_of_first(shard: Path) -> str:
    """The image file that a shard's first record was made from."""
    return decode_filename(next(iter(read_records(shard))))


def test_a_bad_record_is_named_by_its_image_file(records: Path, tmp_path: Path) -> None:
    """The bytes changed since (the check and training), or the image was bad from the start."""
    shard = next(records.glob("train-*"))
    name = name_of_first(shard)
    assert name.endswith(".jpg")
    spoil(shard)
    found = viaduct("data", "check", records, "--json")
    where = [finding["where"] for finding in json.loads(found.stdout)["findings"]]
    assert where[0].endswith(f"(made from {name})")
    trained = viaduct("train", "resnet18_imagenet", "--data", records, *TINY, "--batch", "4", cwd=tmp_path)
    check_refusal(trained, f"(made from {name}): the checksum of its data is wrong")


def test_an_image_that_cannot_be_decoded_is_named_by_its_file(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    bad = next(folder.rglob("*.jpg"))
    bad.write_bytes(bad.read_bytes()[:200])
    run_successfully("data", "build", folder, "--out", tmp_path / "records")
    name = str(bad.relative_to(folder))
    checked = viaduct("data", "check", tmp_path / "records", "--deep")
    assert checked.returncode == 1
    assert f"(made from {name}): its image cannot be decoded" in checked.stdout
    words = ("train", "resnet18_imagenet", "--data", tmp_path / "records", *TINY, "--batch", "4", "--epochs", "1")
    check_refusal(viaduct(*words, cwd=tmp_path), f"(made from {name})")


def test_a_check_of_no_records_is_refused(tmp_path: Path) -> None:
    check_refusal(viaduct("data", "check", tmp_path / "nowhere"), "nowhere: there is no such folder")


def test_the_index_can_be_written_in_the_form_of_dali(records: Path) -> None:
    before = set(records.iterdir())
    output = run_successfully("data", "index", records, "--dali")
    assert output.startswith("3 files, 40 records, ")
    texts = [path for path in set(records.rglob("*")) - before if path.is_file() and is_dali(path)]
    assert len(texts) == 3
    assert sum(len(path.read_text().splitlines()) for path in texts) == 40
    assert run_successfully("data", "index", records).endswith("0 indexed now\n")
    assert run_successfully("data", "index", records, "--rebuild").endswith("3 indexed now\n")


def test_the_index_for_dali_goes_into_a_folder_of_its_own(records: Path, tmp_path: Path) -> None:
    run_successfully("data", "index", records, "--dali-folder", tmp_path / "dali")
    assert sorted(path.name for path in (tmp_path / "dali").iterdir()) == [f"{name}.idx" for name in shards(records)]
    assert not list(records.glob("*.idx"))


def test_an_index_for_dali_that_cannot_be_written_names_the_flag(records: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = viaduct("data", "index", records, "--dali-folder", tmp_path / "file")
    check_refusal(answer, "could not be written", "Name another folder: --dali-folder DIR")


def is_dali(path: Path) -> bool:
    try:
        return all(len(line.split(" ")) == 2 for line in path.read_text("ascii").splitlines())
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("network", ["official", "resnext"])
def test_a_contact_sheet_is_drawn(built: Path, tmp_path: Path, network: str) -> None:
    sheet = tmp_path / "sheet.png"
    lines = run_successfully(
        "data", "show", built, "--count", "3", "--preprocess", network, "--out", sheet
    ).splitlines()
    content = sheet.read_bytes()
    assert content.startswith(PNG_SIGNATURE)
    assert struct.unpack(">2I", content[16:24]) == (5 * 168 + 16, 3 * 168 + 8)
    assert lines[3:] == [str(sheet)]
    for number, line in enumerate(lines[:3], start=1):
        assert line.startswith(f"row {number}: label ")
        assert ", 60x40, train-0000" in line
        assert line.split(",")[0].endswith(CLASSES)
    again = tmp_path / "again.png"
    run_successfully("data", "show", built, "--count", "3", "--preprocess", network, "--out", again)
    assert again.read_bytes() == content


def test_a_sheet_never_replaces_anything_but_an_image(records: Path, tmp_path: Path) -> None:
    shard = records / "train-00000-of-00002"
    before = shard.read_bytes()
    words = ("data", "show", records, "--count", "1", "--out")
    check_refusal(viaduct(*words, shard), "must end in .png")
    assert shard.read_bytes() == before
    sheet = tmp_path / "sheet.png"
    sheet.write_text("my diary")
    check_refusal(viaduct(*words, sheet), f"{sheet} is there already and is not a PNG")
    assert sheet.read_text() == "my diary"
    sheet.unlink()
    run_successfully(*words, sheet)
    run_successfully(*words, sheet)  # a sheet may take the place of a sheet
    check_refusal(viaduct(*words, tmp_path / "nodir/sheet.png"), "there is no folder")


def test_a_sheet_shows_class_folders_too(photos: Path, tmp_path: Path) -> None:
    lines = run_successfully("data", "show", photos, "--count", "2", "--out", tmp_path / "sheet.png").splitlines()
    assert len(lines) == 3
    for line in lines[:2]:
        assert ", 60x40, " in line
        assert (photos / line.split(", ")[-1]).is_file()


def test_one_undecodable_image_leaves_its_row_blank(photos: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "photos"))
    (copy / "ant/00.jpg").write_bytes(jpeg(0)[:300])
    answer = viaduct("data", "show", copy, "--count", "40", "--out", tmp_path / "sheet.png")
    shown = [line for line in answer.stdout.splitlines() if "cannot be shown" not in line]
    (blank,) = [line for line in answer.stdout.splitlines() if "cannot be shown" in line]
    assert (answer.returncode, len(shown)) == (0, 35 + 1)
    assert blank.endswith(": cannot be shown, ant/00.jpg")
    assert answer.stderr.startswith(f"warning: {copy}: ant/00.jpg: the JPEG cannot be decoded")
    pixels = png.decode((tmp_path / "sheet.png").read_bytes())
    top = 8 + (int(blank.split(":")[0].removeprefix("row ")) - 1) * 168
    assert (pixels[top : top + 160, 8:168] == 224).all()


def test_a_policy_shows_on_the_sheet(built: Path, tmp_path: Path) -> None:
    words = ("data", "show", built, "--count", "2", "--out")
    run_successfully(*words, tmp_path / "plain.png")
    run_successfully(*words, tmp_path / "changed.png", "--auto-augment", "randaugment-2-9")
    assert (tmp_path / "plain.png").read_bytes() != (tmp_path / "changed.png").read_bytes()
    check_refusal(
        viaduct(*words, tmp_path / "no.png", "--auto-augment", "imgenet"), "no auto-augment policy", "'imagenet'"
    )


def test_a_sheet_of_more_images_than_there_are_shows_all(built: Path, tmp_path: Path) -> None:
    words = ("--split", "validation", "--count", "99", "--out", tmp_path / "sheet.png")
    assert len(run_successfully("data", "show", built, *words).splitlines()) == 4 + 1


def test_a_sheet_of_nothing_is_refused(built: Path, tmp_path: Path) -> None:
    check_refusal(viaduct("data", "show", built, "--count", "0", cwd=tmp_path), "--count")
    assert list(tmp_path.iterdir()) == []


def test_an_undecodable_image_on_a_sheet_is_named(photos: Path, tmp_path: Path) -> None:
    bad = tmp_path / "photos/ant"
    bad.mkdir(parents=True)
    for number in range(4):
        (bad / f"{number}.jpg").write_bytes(jpeg(number)[:300])
    built = viaduct("data", "build", "photos", "--validation-share", "0.25", cwd=tmp_path)
    assert built.returncode == 0
    assert "warning: ant/0.jpg: the JPEG is cut short, and training stops at it" in built.stderr
    answer = viaduct("data", "show", "records", cwd=tmp_path)
    check_refusal(answer, "train-00000-of-00001: record ", "the JPEG cannot be decoded")
    assert not (tmp_path / "sheet.png").exists()


def test_an_unknown_set_is_answered_with_the_closest(tmp_path: Path) -> None:
    check_refusal(viaduct("data", "fetch", "cifar1O", cwd=tmp_path), "'cifar1O'", "Closest is 'cifar10'")
    assert not (tmp_path / "data").exists()


TINY = ["--device", "cpu", "--set", "data.size=32", "--set", "model=resnet20_quick"]


def test_what_was_built_can_be_trained_on_and_evaluated(records: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--set", "data.size=32", "--batch", "8", "--steps", "2", "--device", "cpu", "--run", run]
    run_successfully("train", "resnet18_imagenet", "--data", records, *words)
    assert (run / "report.html").stat().st_size > 0
    run_successfully("evaluate", run)


@pytest.mark.parametrize("file", ["train-00001-of-00002", "validation-00000-of-00001"])
def test_a_corrupt_record_stops_training_unless_it_may_be_skipped(records: Path, tmp_path: Path, file: str) -> None:
    spoil(records / file)
    prefix = f"{records / file}: record 0 at byte 0"
    words = ["train", "resnet18_imagenet", "--data", records, *TINY, "--batch", "36", "--steps", "1"]
    check_refusal(viaduct(*words, "--run", tmp_path / "stopped"), prefix, "the checksum of its data is wrong")
    run_successfully(*words, "--run", tmp_path / "run", "--on-bad-record", "skip")
    assert prefix in (tmp_path / "run/report.html").read_text()


def test_training_is_balanced_and_augmented_when_requested(records: Path, tmp_path: Path) -> None:
    words = ["train", "resnet18_imagenet", "--data", records, *TINY, "--batch", "12", "--steps", "1", "--balance"]
    answer = viaduct(*words, "--auto-augment", "imagenet", "--run", tmp_path / "run")
    assert answer.returncode == 0, answer.stderr
    assert "balance 1: images of a class → seen in an epoch: ant: 18 → 18 (x1.00), bee: 18 → 18" in answer.stderr
    stored = (tmp_path / "run/recipe.json").read_text()
    assert '"auto_augment": "imagenet"' in stored


def test_very_small_images_can_be_trained_on(records: Path, tmp_path: Path) -> None:
    words = [*TINY, "--set", "data.size=2", "--batch", "12", "--steps", "1", "--run", tmp_path / "run"]
    run_successfully("train", "resnet18_imagenet", "--data", records, *words)


def test_training_on_too_few_outputs_says_which_flag_to_give(records: Path, tmp_path: Path) -> None:
    words = ["train", "resnet18_imagenet", "--data", records, *TINY, "--batch", "12", "--steps", "1"]
    shift = "; --classes 2 makes the labels begin with 0"
    for wrong, other in ((["--classes", "1"], shift), (["--classes", "2", "--set", "data.label_shift=0"], "")):
        answer = viaduct(*words, *wrong, "--run", tmp_path / "a")
        check_refusal(answer, "disagrees with the data", f"{records / 'labels.txt'} has 2 classes, labels 1 to 2")
        check_refusal(answer, f"give --classes 3{other}.")
    output = viaduct(*words, "--classes", "2", "--run", tmp_path / "b")
    assert output.returncode == 0, output.stderr
    assert "with 2 outputs they are counted from 0" in output.stderr


def test_records_that_name_no_classes_keep_the_recipes_number_and_it_is_reported(records: Path, tmp_path: Path) -> None:
    (records / "labels.txt").unlink()
    words = ["train", "resnet18_imagenet", "--data", records, *TINY, "--batch", "12", "--steps", "1"]
    output = viaduct(*words, "--run", tmp_path / "run").stderr
    assert "go up to 2 (no labels.txt names its classes): 1,001 outputs are trained; --classes 3 would fit" in output


def test_a_recipe_without_records_says_so(tmp_path: Path) -> None:
    for flag, value in (("--on-bad-record", "skip"), ("--increased-aug", "on"), ("--hue", "0.1")):
        answer = viaduct("train", "shapes_taster", flag, value, cwd=tmp_path)
        check_refusal(answer, f"{flag}: shapes_taster trains on shapes, which has no records")


def test_training_on_synthetic_data_needs_no_files(tmp_path: Path) -> None:
    words = [*TINY, "--set", "data.size=8", "--set", "data.eval_batch=5000", "--batch", "4", "--steps", "1"]
    run_successfully("train", "resnet18_imagenet", "--data", "synthetic", *words, "--run", "run", cwd=tmp_path)
    assert (tmp_path / "run/report.html").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_any_recipe_trains_on_noise_is_resumed_and_evaluated(tmp_path: Path) -> None:
    words = ("train", "shapes_taster", "--data", "synthetic", "--set", "data.train_images=64", "--batch", "4")
    begun = viaduct(*words, "--steps", "2", "--run", "run", cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    assert "noise" in begun.stderr
    longer = viaduct("train", "--run", "run", "--steps", "3", cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert "Continuing from" in longer.stderr
    scored = viaduct("evaluate", "run", "--json", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert (
        json.loads(scored.stdout)["count"] == json.loads((tmp_path / "run/summary.json").read_text())["final"]["count"]
    )
    assert json.loads(scored.stdout)["data"] == "synthetic"
    assert "noise" in scored.stderr
    assert "noise" in (tmp_path / "run" / "report.html").read_text()


def test_a_folder_called_synthetic_is_not_taken_for_noise_without_a_message(tmp_path: Path) -> None:
    (tmp_path / "synthetic").mkdir()
    words = ("train", "shapes_taster", "--data", "synthetic", "--steps", "1", "--batch", "4")
    output = viaduct(*words, "--run", "run", cwd=tmp_path).stderr
    assert f"--data {tmp_path / 'synthetic'}" in output


def test_missing_cifar10_names_the_command_that_brings_it(tmp_path: Path) -> None:
    for data in ((), ("--data", "nowhere"), ("--data", tmp_path)):
        check_refusal(viaduct("train", "resnet56_cifar10", *data, cwd=tmp_path), "viaduct data fetch cifar10 --out")


def test_a_recipe_for_records_asks_for_them(tmp_path: Path) -> None:
    check_refusal(viaduct("train", "resnet18_imagenet", cwd=tmp_path), "--data")
    check_refusal(
        viaduct("train", "resnet18_imagenet", "--data", "nowhere", cwd=tmp_path), "nowhere: there is no such folder"
    )
    assert list(tmp_path.iterdir()) == []
