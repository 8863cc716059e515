"""Sizes of networks: parts add up, and what works in training only is told apart."""

from __future__ import annotations

import pytest

from viaduct.models.sizes import measure


@pytest.mark.parametrize("name", ["resnet18_v2", "resnext50", "amoebanet_d"])
def test_blocks_and_layers_add_up_to_the_same(name: str) -> None:
    blocks, layers = measure(name), measure(name, layers=True)
    assert len(layers.parts) > len(blocks.parts)
    assert blocks.parameters == layers.parameters
    assert blocks.macs == layers.macs


def test_figures_are_those_of_the_usual_classes_and_size() -> None:
    sizes = measure("resnet56_cifar")
    assert (sizes.classes, sizes.input_size, sizes.parameters) == (10, 32, 856_058)
    assert measure("resnet50_v1").macs == 4_089_186_304


def test_another_number_of_classes_changes_the_head_only() -> None:
    usual, other = measure("resnet18_v1"), measure("resnet18_v1", classes=10)
    assert usual.parts[:-1] == other.parts[:-1]
    assert other.parts[-1].parameters == 513 * 10


def test_the_second_head_counts_as_parameters_but_not_as_work() -> None:
    sizes = measure("amoebanet_d")
    assert sum(part.parameters for part in sizes.parts if part.output is None) == 663_984
    assert sizes.macs == 5_715_773_792


def test_layers_know_their_outputs() -> None:
    outputs = {part.name: part.output for part in measure("resnet18_v1", layers=True).parts}
    assert outputs["stem.conv"] == outputs["stem.norm"] == (64, 112, 112)
    assert outputs["stages.3.1.norm2"] == (512, 7, 7)
    assert outputs["head"] == (1001,)
