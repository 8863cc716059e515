"""Every family of networks, with its own preprocessing, in every format; each is compared with PyTorch on photos."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.extras import is_installed

SCRIPT = Path(__file__).parent / "export_families.py"
ONNX = Path(sys.prefix) / "onnx"  # where the Makefile installs it: not beside TensorFlow
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("pt2", {"input": "pixels"}),
    ("onnx", {"input": "pixels"}),
    ("savedmodel", {"input": "image-bytes"}),
    ("frozen-pb", {"input": "tensor", "fold": True}),
    ("pt2", {"input": "tensor", "precision": "fp16", "batch": 4, "fold": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "flags"), FORMS)
def test_every_family_computes_the_same_in_every_format(form: str, flags: dict[str, Any], tmp_path: Path) -> None:
    if form in ("savedmodel", "frozen-pb") and not is_installed("tensorflow"):
        pytest.skip("TensorFlow is not installed")
    if form == "onnx" and not ONNX.is_dir() and not is_installed("onnxruntime"):
        pytest.skip(f"onnx is neither installed nor in {ONNX}")
    path = [str(ONNX)] if form == "onnx" else []
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), form, str(tmp_path), json.dumps(flags)],
        capture_output=True,
        text=True,
        timeout=1200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)},
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 9
    limit = 0.1 if flags.get("precision") == "fp16" else 2e-4
    for name, largest, equal, images in rows:
        assert largest <= limit, name
        assert equal == images == 6, name
