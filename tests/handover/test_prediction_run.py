"""`viaduct predict`: the classes of image files, as evaluation counts them; what cannot be read is skipped."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from forked_viaduct import start_command, viaduct
from unprivileged import drop_file_privileges
from viaduct.data.png import encode_png

RECORDS = """\
from torch import nn
from viaduct.recipes import Records, Recipe

def network(classes):
    return nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, classes))

recipe = Recipe(model=network, data=Records(global_batch=4, size=32, classes=4, preprocess="v15"), steps=6)
"""


def read_json(run: Path, *words: str | Path) -> dict[str, Any]:
    done = viaduct("predict", run, *words, "--json", "--device", "cpu")
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def measure_top1(run: Path) -> float:
    done = viaduct("evaluate", run, "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["top1"])


def test_accuracy_over_the_files_is_what_evaluate_counts(shapes_run: Path, images: Path) -> None:
    rows = read_json(shapes_run, images, "--batch", "7")["images"]
    hits = sum(row["predictions"][0]["index"] == int(Path(row["file"]).stem.split("-")[1]) for row in rows)
    assert len(rows) == 64
    assert hits / len(rows) == measure_top1(shapes_run)
    assert [row["file"] for row in rows] == sorted(row["file"] for row in rows)


def test_accuracy_over_jpegs_in_class_folders_is_what_evaluate_counts(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    for split, count in (("train", 8), ("validation", 9)):
        for label in range(3):
            for number in range(count):
                height, width = draw.integers(20, 70, 2)
                pixels = draw.integers(0, 100 + 70 * label, (height, width, 3)).astype(np.uint8)
                file = tmp_path / "data" / split / f"class{label}" / f"{number}.jpg"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(simplejpeg.encode_jpeg(pixels, colorspace="RGB"))
    (tmp_path / "small.py").write_text(RECORDS)
    made = viaduct("train", "small.py", "--data", "data", "--run", "run", "--device", "cpu", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    rows = read_json(tmp_path / "run", tmp_path / "data" / "validation")["images"]
    hits = sum(row["predictions"][0]["label"] == Path(row["file"]).parent.name for row in rows)
    assert len(rows) == 27
    assert hits / len(rows) == measure_top1(tmp_path / "run")


def test_a_row_has_the_file_and_the_most_probable_classes(shapes_run: Path, images: Path) -> None:
    file = sorted(images.iterdir())[0]
    done = viaduct("predict", shapes_run, file, "--top", "3", "--device", "cpu")
    expected = read_json(shapes_run, file, "--top", "3")["images"][0]["predictions"]
    cells = [f"{each['label']}  {100 * each['probability']:.2f} %" for each in expected]
    assert done.stdout == "  ".join([str(file), *cells]) + "\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_more_classes_than_there_are_give_all_of_them(shapes_run: Path, images: Path) -> None:
    file = sorted(images.iterdir())[0]
    (row,) = read_json(shapes_run, file, "--top", "1000")["images"]
    assert sorted(each["index"] for each in row["predictions"]) == list(range(10))
    assert sum(each["probability"] for each in row["predictions"]) == pytest.approx(1, abs=1e-6)
    ranked = [each["probability"] for each in row["predictions"]]
    assert ranked == sorted(ranked, reverse=True)


def test_the_fast_network_gives_the_same_classes(shapes_run: Path, images: Path) -> None:
    exact, fast = (read_json(shapes_run, images, "--top", "1", *flags) for flags in ((), ("--fast",)))
    assert (exact["folded"], fast["folded"]) == (False, True)
    assert "folding" not in exact
    assert (fast["folding"]["images"], fast["folding"]["origin"]) == (32, "the first 32 images")
    rows = [[row["predictions"][0] for row in document["images"]] for document in (exact, fast)]
    assert [row["probability"] for row in rows[1]] == pytest.approx([row["probability"] for row in rows[0]], abs=1e-4)


def test_a_device_that_is_missing_leaves_stdout_empty(shapes_run: Path, images: Path) -> None:
    done = viaduct("predict", shapes_run, images, "--json", "--device", "mlu")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of images and of much else."""
    folder = tmp_path / "mixed"
    (folder / "inner").mkdir(parents=True)
    jpeg = simplejpeg.encode_jpeg(np.full((40, 60, 3), 90, np.uint8), colorspace="RGB")
    (folder / "a.jpg").write_bytes(jpeg)
    (folder / "inner" / "noname").write_bytes(jpeg)
    (folder / "cut.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "empty.PNG").touch()
    (folder / "notes.txt").write_text("BMW and other words")
    (folder / "sound.wav").write_bytes(b"RIFF\x10\0\0\0WAVEfmt ")
    (folder / ".hidden.jpg").write_bytes(jpeg)
    os.mkfifo(folder / "pipe")
    (folder / "again").symlink_to(".")
    return folder


def test_a_folder_is_searched_and_what_is_no_image_is_passed_over(shapes_run: Path, mixed: Path) -> None:
    done = viaduct("predict", shapes_run, "mixed", "--top", "1", "--device", "cpu", cwd=mixed.parent)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["mixed/a.jpg", "mixed/inner/noname"]
    assert done.returncode == 1
    for output in (
        "skipped mixed/cut.jpg: the JPEG",
        "skipped mixed/empty.PNG: not an image of a known format: it is empty.",
        "passed over 3 files in folders, no images: mixed/notes.txt, mixed/pipe, mixed/sound.wav",
        "passed over 1 hidden name",
        "predicted 2 images, skipped 2",
    ):
        assert output in done.stderr


def test_a_csv_has_a_line_for_every_image_and_every_error(shapes_run: Path, mixed: Path) -> None:
    words = ("predict", shapes_run, "mixed", "gone.jpg", "--top", "2", "--device", "cpu")
    done = viaduct(*words, "--csv", "out.csv", cwd=mixed.parent)
    assert (done.returncode, done.stdout) == (1, "")
    rows = list(csv.DictReader(io.StringIO((mixed.parent / "out.csv").read_text())))
    assert [row["file"] for row in rows] == [
        *("gone.jpg", "mixed/a.jpg", "mixed/cut.jpg", "mixed/empty.PNG", "mixed/inner/noname")
    ]
    assert [bool(row["error"]) for row in rows] == [True, False, True, True, False]
    assert float(rows[1]["probability_1"]) >= float(rows[1]["probability_2"])
    again = viaduct(*words, "--csv", "-", cwd=mixed.parent)
    assert again.stdout == (mixed.parent / "out.csv").read_text()


def test_json_tells_images_and_errors_apart(shapes_run: Path, mixed: Path) -> None:
    document = read_json(shapes_run, mixed, mixed / "notes.txt")
    assert [Path(row["file"]).name for row in document["images"]] == ["a.jpg", "noname"]
    assert [Path(row["file"]).name for row in document["errors"]] == ["cut.jpg", "empty.PNG", "notes.txt"]
    assert (document["passed_over"], document["hidden"]) == (3, 1)
    assert (document["recipe"], document["step"]) == ("shapes_taster", 12)


def test_paths_come_from_stdin(shapes_run: Path, images: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.stdin = open({str(tmp_path / 'list')!r})"
    (tmp_path / "list").write_text("\n".join(str(file) for file in sorted(images.iterdir())[:3]) + "\n")
    with start_command(run_with_list, code, ["predict", str(shapes_run), "-", "--json", "--device", "cpu"]) as command:
        out, stderr = command.communicate()
    assert len(json.loads(out)["images"]) == 3, stderr


def run_with_list(code: str, words: list[str]) -> None:
    import sys

    from viaduct import cli

    exec(code)
    sys.argv = ["viaduct", *words]
    cli.main()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["empty"], "there are no files in 'empty'"),
        (["https://example.com/photo.jpg"], "Download it first"),
        (["gone.jpg"], "gone.jpg: there is no such file or folder"),
        (["text.txt"], "no image was predicted: of 1 file none"),
        (["text.txt", "--top", "0"], "--top"),
        (["text.txt", "--batch", "0"], "--batch"),
        (["text.txt", "--json", "--csv", "-"], "both write to stdout"),
        (["text.txt", "--csv", "text.txt"], "must end in .csv"),
        (["text.txt", "--csv", "other.csv"], "is there already and is not a table of predictions"),
        (["text.txt", "--labels", "text.txt"], "1 names, and the network 10 outputs"),
        (["text.txt", "--device", "tpu"], "no device called 'tpu'"),
        (["text.txt", "--precision", "fp7"], "fp7 is not auto"),
        (["text.txt", "--ema"], "a run is used with its own recipe"),
        (["text.txt", "--step", "5"], "no checkpoint of step 5"),
    ],
)
def test_wrong_input_is_refused(words: list[str], message: str, shapes_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("words\n")
    (tmp_path / "other.csv").write_text("name,age\n")
    done = viaduct("predict", shapes_run, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "other.csv").read_text() == "name,age\n"


def test_a_folder_that_takes_no_files_is_named_as_given(shapes_run: Path, images: Path) -> None:
    done = viaduct("predict", shapes_run, sorted(images.iterdir())[0], "--csv", "/proc/x.csv", "--device", "cpu")
    assert done.returncode == 2
    assert "--csv '/proc/x.csv': the operation is not permitted" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_longest_name_of_a_csv_can_be_written(shapes_run: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / f"{'a' * 251}.csv"
    done = viaduct("predict", shapes_run, sorted(images.iterdir())[0], "--csv", out, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == [out.name]


def test_more_skipped_files_than_are_named_are_counted(shapes_run: Path, images: Path, tmp_path: Path) -> None:
    for number in range(13):
        (tmp_path / f"{number:02}.jpg").write_text("words")
    done = viaduct("predict", shapes_run, tmp_path, sorted(images.iterdir())[0], "--device", "cpu")
    assert done.stderr.count(".jpg: not an image") == 10
    assert "skipped 3 more, which are not named here; --json and --csv list all with their reasons" in done.stderr


def test_a_png_that_is_too_large_is_not_called_no_image(shapes_run: Path, tmp_path: Path) -> None:
    Image.new("1", (9000, 9000)).save(tmp_path / "large.png")
    done = viaduct("predict", shapes_run, tmp_path, "--device", "cpu")
    assert done.returncode == 2
    assert "large.png: the PNG has 9,000 x 9,000 pixels; at most 67,108,864 are decoded." in done.stderr
    assert "no image was predicted: of 1 file none could be used." in done.stderr
    assert "are read" not in done.stderr


@pytest.mark.parametrize("flags", [[], ["--recipe", "shapes_taster"]])
def test_a_folder_of_a_run_points_to_the_run(flags: list[str], shapes_run: Path, images: Path) -> None:
    done = viaduct("predict", shapes_run / "checkpoints", images, *flags)
    assert done.returncode == 2
    assert f"Give the run itself: {shapes_run}" in done.stderr


def test_weights_after_the_images_are_pointed_out(shapes_run: Path, tmp_path: Path) -> None:
    done = viaduct("predict", "photo.jpg", shapes_run, cwd=tmp_path)
    assert done.returncode == 2
    assert "the weights come first" in done.stderr


def test_a_file_that_may_not_be_read_is_skipped(shapes_run: Path, images: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(sorted(images.iterdir())[0].read_bytes())
    secret.chmod(0)
    words = ["predict", str(shapes_run), str(secret), str(sorted(images.iterdir())[1]), "--top", "1"]
    with start_command(run_unprivileged, words) as command:
        out, stderr = command.communicate()
        assert command.returncode == 1, stderr
    assert len(out.splitlines()) == 1
    assert f"skipped {secret}: the file may not be read (permission denied)." in stderr


def run_unprivileged(words: list[str]) -> None:
    drop_file_privileges()
    run_with_list("", words)


def test_names_of_any_bytes_are_read_and_shown_safely(shapes_run: Path, tmp_path: Path) -> None:
    names = ["line\nend.png", "\x1b[2J.png", "del\x7f.png", os.fsdecode(b"\xff\xfe.png")]
    for name in names:
        (tmp_path / name).write_bytes(encode_png(np.zeros((8, 8, 3), np.uint8)))
    document = read_json(shapes_run, tmp_path)
    assert sorted(os.path.basename(row["file"]) for row in document["images"]) == sorted(names)
    done = viaduct("predict", shapes_run, tmp_path, "--top", "1", "--csv", "-", "--device", "cpu")
    assert len(done.stdout.splitlines()) == 1 + len(names)
    assert "line\\nend.png" in done.stdout
    assert "\\xff\\xfe.png" in done.stdout
    assert "\x1b" not in done.stdout


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def odd_images() -> Iterator[tuple[str, bytes]]:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    yield "animated.gif", encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    yield "cmyk.jpg", encode(Image.new("CMYK", (40, 30), (10, 20, 30, 40)), "JPEG")
    yield "deep.png", encode(Image.fromarray(np.full((30, 40), 40_000, np.uint16)), "PNG")
    yield "deep.tiff", encode(Image.fromarray(np.full((30, 40), 40_000, np.uint16)), "TIFF")
    yield "point.jpg", encode(Image.new("RGB", (1, 1)), "JPEG")
    yield "point.png", encode(Image.new("RGB", (1, 1)), "PNG")
    yield "web.webp", encode(Image.new("RGB", (9, 5)), "WEBP")
    yield "wide.png", encode(Image.new("L", (3000, 1)), "PNG")


def test_odd_images_are_predicted(shapes_run: Path, tmp_path: Path) -> None:
    for name, data in odd_images():
        (tmp_path / name).write_bytes(data)
    document = read_json(shapes_run, tmp_path, "--top", "1")
    assert {Path(row["file"]).name for row in document["images"]} == {name for name, _ in odd_images()}
    index = {Path(row["file"]).name: row["predictions"] for row in document["images"]}
    assert index["deep.png"] == index["deep.tiff"]


def test_interrupting_leaves_no_half_written_file(shapes_run: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("\n".join([str(file) for file in images.iterdir()] * 4000))
    code = f"import sys; sys.stdin = open({str(tmp_path / 'list')!r})"
    words = ["predict", str(shapes_run), "-", "--csv", str(tmp_path / "out.csv"), "--device", "cpu"]
    with start_command(run_with_list, code, words) as command:
        end = time.monotonic() + 60
        while not list(tmp_path.glob(".out.csv*")) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(command.pid, signal.SIGINT)
        _, stderr = command.communicate(60)
        code_of_end = command.returncode
    assert code_of_end == 130
    assert "interrupted after" in stderr
    assert "out.csv was not written" in stderr
    assert "Traceback" not in stderr
    assert [file.name for file in tmp_path.iterdir()] == ["list"]


def test_a_document_with_errors_only_is_valid_json(shapes_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("words")
    done = viaduct("predict", shapes_run, tmp_path, "--json", "--csv", tmp_path / "out.csv", "--device", "cpu")
    assert done.returncode == 2
    assert len(json.loads(done.stdout)["errors"]) == 1
    assert not (tmp_path / "out.csv").exists()


def test_a_closed_stdin_is_no_list(shapes_run: Path) -> None:
    with start_command(run_with_list, "import sys; sys.stdin = None", ["predict", str(shapes_run), "-"]) as command:
        _, stderr = command.communicate()
    assert "reads paths from stdin, which is closed" in stderr
