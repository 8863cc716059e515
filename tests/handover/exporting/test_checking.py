"""Comparison of an exported graph with PyTorch: what it can show, and what it says where it shows little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from viaduct.handover.exporting.checking import CheckResult, is_distinct

ALLOWED = np.full((4, 3), 1e-5, np.float32)
SATURATED = np.tile(np.array([0, 1, 0], np.float32), (4, 1))


@pytest.mark.parametrize(
    ("expected", "images_differ"),
    [
        (SATURATED, False),
        (np.full((4, 3), 1 / 3, np.float32) + np.float32(1e-6) * np.arange(4, dtype=np.float32)[:, None], False),
        (np.eye(4, 3, dtype=np.float32), True),
        (SATURATED[:1], False),
    ],
)
def test_images_with_equal_outputs_are_no_check(expected: np.ndarray, images_differ: bool) -> None:
    assert is_distinct(expected, ALLOWED[: len(expected)]) is images_differ


def test_a_weak_check_says_so() -> None:
    check_result = CheckResult("torch", 4, "noise", 0.0, 0.0, 4, 0, (1e-5, 0.002))
    assert "shows little" not in str(check_result)
    assert "shows little" in str(replace(check_result, images_differ=False))
