"""The device the tests run on, and small splits and record files to run them with."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from data.image_sources import make_folders
from data.record_files import SIZES, write_split
from viaduct.data.source import Split


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))


@pytest.fixture
def split() -> Split:
    """103 images of 12x10 noise: a prime number of them, and not square, so that mix-ups show."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (103, 12, 10, 3), dtype=np.uint8)
    return Split(images, np.arange(103, dtype=np.int64) % 10)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """15 records to train on in four files, one of them empty, and 4 to validate with."""
    write_split(tmp_path, "train", SIZES)
    write_split(tmp_path, "validation", [4], first=100)
    return tmp_path


@pytest.fixture
def index_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """32 images, JPEGs and PNGs, in four class folders."""
    return make_folders(tmp_path / "photos")
