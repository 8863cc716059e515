"""Convolutions of the vendor's library: its search among algorithms, and the memory layout."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_tunable import CPU, find_wrong_points, list_keys, measure_errors
from viaduct.kernels.tunable import make_case

(KEY,) = list_keys("library_convolution")


def test_every_layout_and_search_gives_the_same_convolution_and_gradients() -> None:
    errors = measure_errors(KEY, CPU, 3, random.Random())
    assert find_wrong_points(errors) == {}
    assert len(errors) == 6  # allowed; without a choice, and two layouts with and without a search


@pytest.mark.parametrize("before", [True, False])
def test_the_switch_of_the_process_is_as_it_was_afterwards(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    make_case(KEY, CPU).run({"benchmark": not before, "layout": "contiguous"})
    assert torch.backends.cudnn.benchmark is before
