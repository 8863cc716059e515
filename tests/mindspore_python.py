"""A Python that has MindSpore, for tests that compare with it: TensorFlow 2.15 and MindSpore want different numpys."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

VARIABLE = "VIADUCT_MINDSPORE_PYTHON"


@cache
def find_python() -> str | None:
    """Return an interpreter that can import MindSpore: the one that a variable names, or this one."""
    candidates = [os.environ.get(VARIABLE), sys.executable]
    for python in candidates:
        if python and subprocess.run([python, "-c", "import mindspore"], capture_output=True).returncode == 0:
            return python
    return None


def run_mindspore(script: Path, *words: object) -> str:
    """Run a script with MindSpore and return its stdout; skip the test where there is no MindSpore."""
    python = find_python()
    if python is None:
        pytest.skip(
            f"compares with MindSpore: pip install mindspore into an environment and set {VARIABLE} to its python"
        )
    done = subprocess.run([python, str(script), *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
