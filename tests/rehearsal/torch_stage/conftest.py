"""Tests of the stand-in are skipped with a torch that cannot be given a device from Python."""

from __future__ import annotations

import pytest
import torch

from viaduct.rehearsal.stage import is_new_enough


@pytest.fixture(autouse=True)
def _needs_a_device_in_python() -> None:
    if not is_new_enough(torch.__version__):
        pytest.skip("a rehearsal of PyTorch scripts needs torch 2.13")
