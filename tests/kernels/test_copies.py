"""Low-precision copies of weights: up to date in every training pass, and none where the weight itself will do."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from viaduct.kernels.copies import Copies

IMAGES = torch.randn(1, 3, 4, 4)


def make_network(dtype: torch.dtype) -> tuple[nn.Sequential, nn.Conv2d, Copies]:
    conv = nn.Conv2d(3, 4, 1, bias=False).to(memory_format=torch.channels_last)
    network, copies = nn.Sequential(conv, nn.ReLU()), Copies(dtype)
    copies.add([conv])
    copies.attach(network)
    return network, conv, copies


def test_a_weight_that_has_precision_and_layout_already_is_not_copied() -> None:
    _, conv, copies = make_network(torch.float32)
    assert copies.get([conv])[conv].data_ptr() == conv.weight.data_ptr()
    assert not copies.get([conv])[conv].requires_grad


def test_a_copy_is_refreshed_before_each_training_pass_and_its_memory_stays() -> None:
    network, conv, copies = make_network(torch.bfloat16)
    addresses = set()
    for value in (1.0, 2.0):
        nn.init.constant_(conv.weight, value)
        network(IMAGES)
        assert copies.weights[conv].dtype == torch.bfloat16
        assert bool((copies.weights[conv] == value).all())
        addresses.add(copies.weights[conv].data_ptr())
    assert len(addresses) == 1


def test_an_evaluation_refreshes_nothing() -> None:
    network, conv, copies = make_network(torch.bfloat16)
    nn.init.constant_(conv.weight, 1.0)
    network(IMAGES)
    nn.init.constant_(conv.weight, 2.0)
    network.eval()(IMAGES)
    assert bool((copies.weights[conv] == 1).all())


def test_within_a_pass_a_block_does_not_refresh_again_but_alone_it_does() -> None:
    network, conv, copies = make_network(torch.bfloat16)
    nn.init.constant_(conv.weight, 1.0)
    copies.begin_pass(network, None)
    nn.init.constant_(conv.weight, 2.0)
    assert bool((copies.get([conv])[conv] == 1).all())
    copies.end_pass(network, None, None)
    assert bool((copies.get([conv])[conv] == 2).all())


def test_a_pass_that_fails_is_over() -> None:
    network, _, copies = make_network(torch.bfloat16)
    with contextlib.suppress(RuntimeError):
        network(torch.randn(1, 5, 4, 4))
    assert not copies.are_fresh
