"""On the CPU a step copies no image into another layout: what convolutions read and get back lies channels_last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct import models
from viaduct.training.networks import place_model

CPU = torch.device("cpu")


def lies_channels_last(x_NCHW: Tensor) -> bool:
    """Also a view of something that does: AmoebaNet's reductions read every other pixel, and give half of a state."""
    return x_NCHW.stride(1) == 1


@contextmanager
def watching(network: nn.Module) -> Iterator[list[str]]:
    """The convolutions that were given something in another layout, forwards or backwards."""
    wrong: list[str] = []

    def watch(name: str, layer: nn.Module) -> Any:
        def look(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
            if not lies_channels_last(given[0]):
                wrong.append(f"{name} forwards")
            made.register_hook(lambda slope: None if lies_channels_last(slope) else wrong.append(f"{name} backwards"))  # type: ignore[no-untyped-call]

        return layer.register_forward_hook(look)

    hooks = [watch(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    yield wrong
    for hook in hooks:
        hook.remove()


def one_step(network: nn.Module, compute: torch.dtype, size: int) -> None:
    images = torch.randn(2, 3, size, size).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", compute, enabled=compute != torch.float32):
        made = network(images)
    heads = made if isinstance(made, tuple) else (made,)
    torch.stack([F.cross_entropy(logits.float(), torch.tensor([0, 1])) for logits in heads]).sum().backward()  # type: ignore[no-untyped-call]


NETWORKS = [
    ("resnet50_v1", {}, 64),
    ("resnet50_v15", {}, 64),
    ("resnet56_cifar", {}, 32),
    ("resnext50", {}, 64),
    ("amoebanet_d", {"cells": 3, "filters": 64, "image": 96}, 96),  # fewer: 1x7_7x1 would have one channel
]


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("name", "options", "size"), NETWORKS, ids=[name for name, _, _ in NETWORKS])
def test_every_convolution_reads_and_gets_back_channels_last(
    name: str, options: dict[str, Any], size: int, compute: torch.dtype
) -> None:
    network = place_model(models.build(name, classes=10, **options).train(), CPU)
    with watching(network) as wrong:
        one_step(network, compute, size)
    assert wrong == []


def test_a_layer_that_leaves_channels_last_is_noticed() -> None:
    leaving = [nn.Flatten(2), nn.Unflatten(2, (6, 6))]
    first = nn.Conv2d(3, 8, 3)
    first.register_forward_hook(lambda module, given, made: made.contiguous())
    network = place_model(nn.Sequential(first, *leaving, nn.Conv2d(8, 4, 6), nn.Flatten()), CPU)
    with watching(network) as wrong:
        one_step(network, torch.float32, 8)
    assert "3 forwards" in wrong
