"""Images/s of the training input, as `viaduct data bench` measures it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from forked_viaduct import viaduct
from viaduct.data.example import encode_example
from viaduct.data.png import encode_png
from viaduct.data.shards import format_shard_name
from viaduct.data.tfrecord import RecordWriter

CLASSES = ("ant", "bee")


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


def test_the_input_is_measured_in_both_modes(built: Path, tmp_path: Path) -> None:
    quick = ("--seconds", "0.2", "--turns", "1", "--batch", "8", "--workers", "1")
    output = run_successfully("data", "bench", built, *quick, "--json", "--out", tmp_path / "figures.json")
    figures = json.loads(output)
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    assert [row["pipeline"] for row in figures["rows"]] == ["exact", "fast"]
    for row in figures["rows"]:
        assert row["images_per_s"] == row["turns_images_per_s"][0] > 0
        assert row["memory_mib"] > 0
        assert row["ratio_to_tf_data"] is None  # tf.data was not asked for
    assert (figures["batch"], figures["workers"], figures["images"]) == (8, 1, 36)
    assert figures["decoder"].startswith(("the region of a crop with libjpeg-turbo", "whole images with simplejpeg"))
    stages = ["read and checksum", "entropy decode", "IDCT and colour", "crop and resize", "normalise"]
    assert list(figures["stages_ms"]) == stages


def test_figures_that_cannot_be_written_are_refused_before_they_are_measured(built: Path, tmp_path: Path) -> None:
    words = ("data", "bench", built, "--seconds", "1000", "--out")
    check_refusal(viaduct(*words, tmp_path / "nodir/b.json"), "nodir/b.json cannot be written: there is no folder")
    check_refusal(viaduct(*words, built / "labels.txt"), "must end in .json")
    (tmp_path / "package.json").write_text("{}")
    check_refusal(viaduct(*words, tmp_path / "package.json"), "is there already and is not a file of figures")
    assert (tmp_path / "package.json").read_text() == "{}"


@pytest.mark.parametrize("wait", [0.2, 2.0])
def test_an_interrupted_measurement_ends_quietly(built: Path, wait: float) -> None:
    command = [sys.executable, "-m", "viaduct", "data", "bench", str(built), "--peer", "pil", "--workers", "1"]
    bench = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
    while not children.read_text():
        time.sleep(0.02)
    time.sleep(wait)  # the first pipeline is starting; or a later one, or all have
    os.killpg(bench.pid, signal.SIGINT)
    _, output = bench.communicate(timeout=600)
    assert bench.returncode not in (0, 2)
    assert "Traceback" not in output
    assert "BrokenPipe" not in output
    assert "resource_tracker" not in output


def test_an_unknown_peer_is_answered_with_the_closest(built: Path) -> None:
    check_refusal(viaduct("data", "bench", built, "--peer", "tfdata"), "no peer called 'tfdata'", "'tf.data'")


QUICK = ["--seconds", "0.2", "--turns", "1", "--batch", "8", "--workers", "1"]


def test_a_measurement_that_meets_a_bad_record_names_it(tmp_path: Path) -> None:
    write_records(tmp_path, {3: b"no image at all"})
    answer = viaduct("data", "bench", tmp_path, *QUICK)
    check_refusal(answer, "train-00000-of-00001: record 3 at byte")
    assert "--on-bad-record" not in answer.stderr  # a flag that it has not


def test_a_peer_that_cannot_read_an_image_is_left_out_with_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is the peer")
    write_records(tmp_path, {3: encode_png(np.zeros((40, 60, 3), dtype=np.uint8))})  # ours reads it
    output = json.loads(run_successfully("data", "bench", tmp_path, *QUICK, "--peer", "tf.data", "--json"))
    assert [row["pipeline"] for row in output["rows"]] == ["exact", "fast"]
    assert "it fails: InvalidArgumentError" in output["left_out"]["tf.data"]


def write_records(folder: Path, others: dict[int, bytes]) -> None:
    """24 images; some of them other bytes."""
    for split, count in (("train", 24), ("validation", 8)):
        with RecordWriter(folder / format_shard_name(split, 0, 1)) as writer:
            for number in range(count):
                encoded = others.get(number, jpeg(number)) if split == "train" else jpeg(number)
                writer.write(encode_example({"image/encoded": encoded, "image/class/label": number % 2 + 1}))


@pytest.mark.parametrize("option", ["--turns", "--batch", "--seconds"])
def test_a_measurement_of_nothing_is_refused(built: Path, option: str) -> None:
    check_refusal(viaduct("data", "bench", built, option, "0"), option)
