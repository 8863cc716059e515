"""Wrong flags of `viaduct export`: refused in a few lines, before anything is loaded or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import python, viaduct

REFUSED = [
    ("--to tflite --out m.tflite", "tflite"),
    ("--to onnx --out m.pt2", "must end in .onnx"),
    ("--to pt2 --out m", "must end in .pt2"),
    ("--to frozen-pb --out served", "must end in .pb"),
    ("--to savedmodel --out m.pb", "a SavedModel is a folder"),
    ("--to pt2 --out m.pt2 --batch 0", "--batch is '0'"),
    ("--to pt2 --out m.pt2 --batch many", "--batch is 'many'"),
    ("--to pt2 --out m.pt2 --input image-bytes", "It takes: pixels, tensor."),
    ("--to savedmodel --out m --input pixels", "It takes: tensor, image-bytes."),
    ("--to safetensors --out m.safetensors --precision fp16", "--precision does not go with --to safetensors"),
    ("--to safetensors --out m.safetensors --fold-bn", "--fold-bn does not go with --to safetensors"),
    ("--to safetensors --out m.safetensors --batch 8", "--batch does not go with --to safetensors"),
    ("--to safetensors --out m.safetensors --input tensor", "--input tensor does not go with --to safetensors"),
    ("--to pt2 --out m.pt2 --opset 18", "--opset is for ONNX"),
    ("--to pt2 --out there.pt2", "there.pt2 is there already"),
    ("--to pt2 --out carded.pt2", "carded.pt2.md is there already"),
    ("--to pt2 --out folder.pt2 --force", "folder.pt2 is a folder"),
    ("--to savedmodel --out photos --force", "holds no SavedModel; it is not replaced"),
    ("--to savedmodel --out plain --force", "plain is a file, and a SavedModel is a folder"),
    ("--to pt2 --out m.pt2 --check-images empty", "it holds no .jpg, .jpeg or .png files"),
    ("--to pt2 --out m.pt2 --check-images nowhere", "there is no such folder"),
    ("--to pt2 --out m.pt2 --check-count 0", "--check-count"),
    ("--to pt2 --out there.pt2/inner/m.pt2", "is a file, not a folder"),
    ("--to safetensors --no-check --out /proc/m.safetensors", "--out '/proc/m.safetensors': the operation is not"),
    (f"--to pt2 --out {'a' * 250}.pt2", "a name of 259 bytes is too long"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("requests")
    for name in ("there.pt2", "carded.pt2.md", "plain"):
        (made / name).write_text("mine")
    for name in ("folder.pt2", "photos", "empty"):
        (made / name).mkdir()
    (made / "photos" / "cat.jpg").write_text("mine")
    return made


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_wrong_flags_are_refused_and_leave_nothing(flags: str, message: str, folder: Path, shapes_run: Path) -> None:
    before = sorted(folder.rglob("*"))
    answer = viaduct("export", shapes_run, *flags.split(), cwd=folder)
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert sorted(folder.rglob("*")) == before


def test_a_missing_package_names_the_extra_and_what_it_cannot_stand_beside(shapes_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    answer = viaduct("export", shapes_run, "--to", "onnx", "--out", tmp_path / "model.onnx")
    if answer.returncode == 0:
        pytest.skip("onnx is installed in this environment")
    assert answer.returncode == 2
    assert "pip install 'viaduct[onnx]' (in an environment without TensorFlow 2.15" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_explained_and_leaves_nothing(shapes_run: Path, tmp_path: Path) -> None:
    words = ["viaduct", "export", str(shapes_run), "--to", "pt2", "--out", str(tmp_path / "model.pt2")]
    answer = python(
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"  # bytes a file may have, for this process
        f"sys.argv = {words!r}\n"
        "from viaduct.cli import main\n"
        "main()"
    )
    assert answer.returncode == 2, answer.stderr
    assert "the file would be larger than is allowed" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []
