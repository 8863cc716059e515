"""Flags and output of `viaduct evaluate --latency`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked_viaduct import viaduct


def test_evaluate_prints_a_row_for_each_batch_size(shapes_run: Path) -> None:
    flags = ["--latency", "--batch", "1,3", "--warm-up", "2", "--repeats", "4", "--device", "cpu", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "viaduct", "evaluate", str(shapes_run), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["batch"] for row in found["rows"]] == [1, 3]
    assert found["folding"]["origin"] == "16 of the run's validation images"
    assert found["folding"]["largest_difference_of_a_probability"] < 1e-4  # in fp32


@pytest.mark.parametrize(("flag", "value"), [("--batch", "4"), ("--warm-up", "0"), ("--repeats", "9")])
def test_flags_of_latency_are_refused_without_it(flag: str, value: str, shapes_run: Path) -> None:
    done = viaduct("evaluate", shapes_run, flag, value, "--device", "cpu")
    assert done.returncode == 2
    assert f"{flag} is for --latency, which is not given." in done.stderr
    assert done.stdout == ""
