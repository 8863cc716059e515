"""The examples run from end to end, as a user would run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the example is a script for bash, which is not here")
@pytest.mark.skipif(
    importlib.util.find_spec("skimage") is None, reason="the photographs are scikit-image's: pip install 'viaduct[dev]'"
)
def test_a_network_is_trained_from_a_folder_of_images(tmp_path: Path) -> None:
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    command = ["bash", ROOT / "examples/imagenet_from_folder.sh", tmp_path, "60"]
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "error"}
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "nothing wrong was found" in answer.stdout
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (tmp_path / "run/report.html").stat().st_size > 0
