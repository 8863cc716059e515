"""Producers of tensors, and exits of gradients, found in autograd's graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from comparison.networks import Awkward, values
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.comparison.records import StoredDump

pytestmark = pytest.mark.usefixtures("one_thread")


def test_edges_lead_through_functions_that_no_module_sees(side: StoredDump) -> None:
    assert set(side.edges["block"]) == {"act", "block.norm"}
    assert side.edges["drop"] == ("block",)
    assert side.edges["head"] == ("shared",)
    assert set(side.edges["shared"]) == {"drop"}
    assert side.edges["loss"] == ("head",)
    assert side.edges["conv"] == ()


def test_the_gradient_of_a_leaf_is_found_through_several_modules(tmp_path: Path) -> None:
    model, images = Awkward(), torch.randn(2, 3, 8, 8, requires_grad=True)
    with Dump(model, tmp_path) as dump:
        model(images).sum().backward()
        dump.step()
    assert images.grad is not None
    assert np.array_equal(values(read(tmp_path), "network", "grad_input"), images.grad.numpy())
