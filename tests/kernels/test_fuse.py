"""What our kernels take over in a network, and what they leave alone. No kernel runs here."""

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels.cell import can_fuse_cell
from viaduct.kernels.fuse import fuse
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import NORMAL, Cell, Plan, Previous


def small() -> AmoebaNet:
    return AmoebaNet(10, cells=3, filters=16, stem_filters=8, image=67)


def test_norms_that_ask_other_ranks_are_left_alone() -> None:
    network = nn.SyncBatchNorm.convert_sync_batchnorm(small())
    assert fuse(network, torch.float32) == 0
    assert "forward" not in vars(network)


def test_an_evaluation_runs_as_it_is_written() -> None:
    network = small().eval()
    fused = copy.deepcopy(network)
    assert fuse(fused, torch.bfloat16) == 8
    images = torch.randn(1, 3, 67, 67)
    assert torch.equal(fused(images), network(images))


def test_weights_and_their_names_stay() -> None:
    network = small()
    before = network.state_dict()
    fuse(network, torch.bfloat16)
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(after[name] is tensor or torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_cell_whose_products_would_skip_pixels_is_left_alone() -> None:
    assert not can_fuse_cell(Cell(NORMAL, 8, Previous(8, halved=False), 16, 2))


def test_a_state_with_too_many_readers_is_left_alone() -> None:
    crowded = Plan(
        combinations=((("none", 0), ("max 3x3", 0)), (("avg 3x3", 0), ("none", 0)), (("none", 0), ("none", 1))),
        output=(4,),
    )
    assert not can_fuse_cell(Cell(crowded, 8, Previous(8, halved=False), 16, 1))
    assert can_fuse_cell(Cell(NORMAL, 8, Previous(8, halved=False), 16, 1))
