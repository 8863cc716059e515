"""The device the tests run on, and small splits to run them with."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from viaduct.data.source import Split


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))


@pytest.fixture
def split() -> Split:
    """103 images of 12x10 noise: a prime number of them, and not square, so that mix-ups show."""
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (103, 12, 10, 3), dtype=np.uint8)
    return Split(images, np.arange(103, dtype=np.int64) % 10)
