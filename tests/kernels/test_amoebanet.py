"""AmoebaNet's forward pass in training on our kernels."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels import amoebanet
from viaduct.kernels.amoebanet import can_fuse_network, list_stem_readers
from viaduct.kernels.pooling import Pool
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import Cell


def make_network() -> AmoebaNet:
    return AmoebaNet(10, cells=3, filters=16, stem_filters=8, image=67)


def test_a_network_with_a_cell_of_another_kind_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make_network()
    assert can_fuse_network(network)
    other = network.cells["cell_stem_0"]
    monkeypatch.setattr(amoebanet, "can_fuse_cell", lambda cell: cell is not other)
    assert not can_fuse_network(network)


def test_the_input_of_the_first_two_cells_is_the_stem_behind_a_relu() -> None:
    first = next(iter(make_network().cells.values()))
    assert isinstance(first, Cell)
    assert list_stem_readers(first)[-2:] == [True, True]


def test_the_auxiliary_head_computes_what_it_does_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pool is asked of our kernel, and that of PyTorch stands in for it here."""
    head = make_network().aux
    assert head is not None

    def pool_by_torch(x: torch.Tensor, pool: Pool) -> torch.Tensor:
        assert pool.average
        assert pool.valid_only
        return F.avg_pool2d(x, pool.size, pool.stride)

    monkeypatch.setattr(amoebanet, "apply_pool", pool_by_torch)
    side = 5 + 3 * (head.grid - 1)
    images = torch.randn(2, head.proj.in_channels, side, side)
    assert torch.equal(amoebanet.run_auxiliary_head(head, images), copy.deepcopy(head)(images))
