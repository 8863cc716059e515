"""The kernels compute what float64 does, in Triton's interpreter; on a card tests/gpu asks again, in bf16."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
CHECKS = Path(__file__).with_name("check_kernels.py")


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    """In a process of its own: Triton decides at its import whether it interprets."""
    made = subprocess.run(
        [sys.executable, str(CHECKS), str(int.from_bytes(os.urandom(2), "big"))],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, dict[str, float]] = json.loads(made.stdout)
    return found


CASES = [
    "stem", "stem SAME", "bottleneck", "bottleneck SAME, odd size", "bottleneck, mean", "grouped bottleneck",
    "torchvision block", "torchvision grouped block", "torchvision RegNet block", "timm block", "timm RegNet block",
    "torchvision block, odd size",
    "groups of 4", "groups of 4, stride 2, SAME", "groups of 8, stride 2, SAME, odd size", "groups of 32, stride 2",
    "norm", "norm of one row tile", "max pool 3x3", "max pool 3x3, stride 2, odd size",
    "max pool 3x3, stride 2, even size", "max pool 2x2", "max pool 2x2, stride 2", "average pool 3x3",
    "average pool 3x3, stride 2", "average pool 2x2", "average pool 5x5, stride 3, whole windows", "norm with a ReLU",
    "norm, part of a larger tensor", "sum of two norms", "sum of a norm and a pool, four readers",
    "sum of a pool and an image", "sum of a pool and a norm, dropped paths", "cells",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_float64(errors: dict[str, dict[str, float]], case: str) -> None:
    # Far from zero the input itself has only four digits behind the point: its spread is known to 1e-5. Cells have
    # twenty layers one behind the other.
    allowed = 1e-4 if case in ("norm", "norm of one row tile", "cells") else 1e-5
    assert {name: error for name, error in errors[case].items() if not error < allowed} == {}


def test_no_case_is_forgotten(errors: dict[str, dict[str, float]]) -> None:
    assert set(errors) == set(CASES)
