"""A short run of the built-in shapes, which every test of handing over uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shapes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the built-in shapes for some steps: weights with settled statistics, far from random outputs."""
    run = tmp_path_factory.mktemp("handover") / "shapes"
    flags = ["--device", "cpu", "--run", str(run), "--steps", "12", "--set", "data.train_images=512"]
    flags += ["--set", "data.validation_images=64", "--precision", "fp32"]
    done = subprocess.run(
        [sys.executable, "-m", "viaduct", "train", "shapes_taster", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return run
