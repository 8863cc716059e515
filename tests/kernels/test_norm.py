"""Batch norm over rows of pixels."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_norm, find_wrong
from kernels.interpreter import Interpret
from viaduct.kernels import norm


@pytest.mark.process
@pytest.mark.parametrize(("rows", "channels"), [(203, 72), (5, 8)])
def test_a_norm_agrees_with_float64(rows: int, channels: int, interpret: Interpret) -> None:
    # Far from zero the input itself has only four digits behind the point: its spread is known to 1e-5.
    assert find_wrong(interpret(check_norm, rows, channels), 1e-4) == {}


def test_images_become_rows_and_images_again_without_a_copy() -> None:
    images = torch.randn(2, 8, 3, 5).contiguous(memory_format=torch.channels_last)
    rows = norm.view_as_rows(images)
    assert rows.shape == (30, 8)
    assert torch.equal(rows[7], images[0, :, 1, 2])
    assert torch.equal(norm.view_as_images_like(rows, images), images)
    assert rows.data_ptr() == norm.view_as_images_like(rows, images).data_ptr() == images.data_ptr()
