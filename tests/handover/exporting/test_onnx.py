"""ONNX files in ONNX Runtime, which cannot share an environment with TensorFlow 2.15: it has a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.extras import is_installed

FOLDER = Path(sys.prefix) / "onnx"  # where the Makefile installs it
USE = """
import json, sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(taken,) = session.get_inputs()
outputs = [output.name for output in session.get_outputs()]
sums = []
for count in (1, 5):
    probabilities, classes = session.run(None, {taken.name: numpy.zeros((count, 32, 32, 3), numpy.uint8)})
    assert probabilities.shape == (count, 10) and (probabilities.argmax(1) == classes).all()
    sums.append(float(probabilities.sum()) / count)
print(json.dumps([taken.name, taken.shape, taken.type, outputs, sums]))
"""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not (FOLDER / "onnxruntime").is_dir() and not is_installed("onnxruntime"),
        reason=f"onnx is neither installed nor in {FOLDER}",
    ),
]


def execute(*words: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=600,
    )


def test_an_onnx_file_runs_without_viaduct_in_batches_of_any_size(shapes_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    made = execute("-m", "viaduct", "export", shapes_run, "--to", "onnx", "--out", out)
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    assert "top-1 equal on 64 of 64" in made.stdout
    used = execute("-c", USE, out)
    assert used.returncode == 0, used.stderr
    name, shape, kind, outputs, sums = json.loads(used.stdout)
    assert (name, shape, kind) == ("pixels", ["batch", 32, 32, 3], "tensor(uint8)")
    assert outputs == ["probabilities", "classes"]
    assert sums == [pytest.approx(1), pytest.approx(1)]
    card = json.loads((tmp_path / "model.onnx.json").read_text())
    assert card["opset"] >= 18
    assert card["check"]["runtime"].startswith("onnxruntime ")


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["--input tensor --batch 8 --fold-bn", "--precision fp16 --fold-bn", "--opset 18"])
def test_onnx_in_other_forms(flags: str, shapes_run: Path, tmp_path: Path) -> None:
    made = execute(
        "-m", "viaduct", "export", shapes_run, "--to", "onnx", "--out", tmp_path / "model.onnx", *flags.split()
    )
    assert made.returncode == 0, made.stderr
    assert "of 64" in made.stdout


@pytest.mark.slow
def test_image_bytes_are_refused_where_the_runtime_cannot_decode(shapes_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    made = execute("-m", "viaduct", "export", shapes_run, "--to", "onnx", "--out", out, "--input", "image-bytes")
    if made.returncode == 0:
        assert "of 64" in made.stdout
        return
    assert made.returncode == 2
    assert "cannot decode images" in made.stderr
    assert "ImageDecoder" in made.stderr
    assert list(tmp_path.iterdir()) == []
