"""Benchmarks still fit the code that they measure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
IMPORT_ALL = """
import importlib, sys, traceback
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        print(name, traceback.format_exc(), sep=": ")
"""


@pytest.mark.process
def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    command = [sys.executable, "-c", IMPORT_ALL, *names]
    result = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert (result.stdout, result.returncode) == ("", 0), result.stderr
