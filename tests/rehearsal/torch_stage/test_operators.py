"""PyTorch's operator database on the stand-ins: the script that makes the table in docs/results.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "stand_in_operators.py"


def run_operators(folder: Path, *options: str, timeout: int = 600) -> tuple[int, dict[str, Any], str]:
    out = folder / "operators.json"
    command = [sys.executable, str(SCRIPT), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, json.loads(out.read_text()) if out.exists() else {}, done.stdout + done.stderr


def test_a_sample_of_the_operators_equals_the_cpu_and_one_that_ends_its_process_is_named(tmp_path: Path) -> None:
    options = ("--on", "cuda", "--every", "43", "--samples", "2", "--crash", "abs")
    code, record, output = run_operators(tmp_path, *options)
    assert code == 1, output
    assert [(case["operator"], case["outcome"]) for case in record["samples"]["not equal"]] == [("abs", "crashes")], (
        output
    )
    assert sum(int(row["equal"]) for row in record["rows"]) > 40, output


@pytest.mark.slow
def test_ninety_nine_of_a_hundred_operators_equal_the_cpu_bit_for_bit(tmp_path: Path) -> None:
    _, record, output = run_operators(tmp_path, "--samples", "12", "--jobs", "2", timeout=3600)
    for row in record["rows"]:
        assert float(row["share"].split()[0]) >= 99, output
