"""The kernels compute what float64 does, in Triton's interpreter; on a card tests/gpu asks again, in bf16."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
CHECKS = Path(__file__).with_name("checks.py")


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    """In a process of its own: Triton decides at its import whether it interprets."""
    made = subprocess.run(
        [sys.executable, str(CHECKS), str(int.from_bytes(os.urandom(2), "big"))],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, dict[str, float]] = json.loads(made.stdout)
    return found


CASES = [
    "stem", "stem SAME", "bottleneck", "bottleneck SAME, odd size", "grouped bottleneck", "groups of 4",
    "groups of 4, stride 2, SAME", "groups of 8, stride 2, SAME, odd size", "groups of 32, stride 2", "norm",
    "norm of one row tile",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_float64(errors: dict[str, dict[str, float]], case: str) -> None:
    # Far from zero the input itself has only four digits behind the point: its spread is known to 1e-5.
    allowed = 1e-4 if case.startswith("norm") else 1e-5
    assert {name: error for name, error in errors[case].items() if not error < allowed} == {}


def test_no_case_is_forgotten(errors: dict[str, dict[str, float]]) -> None:
    assert set(errors) == set(CASES)
