"""Tensors of PyTorch files matched to a network by name and shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.weights.torch_names import (
    OWN,
    TORCHVISION,
    describe_differences,
    describe_tensors,
    list_torchvision_names,
    match_tensors,
)

Shapes = dict[str, tuple[int, ...]]


def make_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))


def shapes_of(network: nn.Module, prefix: str = "") -> Shapes:
    return {prefix + name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def test_a_tensor_is_never_matched_by_its_shape_alone() -> None:
    network = make_network()
    match = match_tensors(network, {f"other.{name}": shape for name, shape in shapes_of(network).items()})
    assert match.names_in_file == {}
    assert match.share == 0
    assert len(match.missing) == 8, "all but the batch counter"


def test_a_missing_batch_counter_is_no_loss_and_another_tensor_is() -> None:
    shapes = shapes_of(make_network())
    del shapes["1.num_batches_tracked"]
    assert match_tensors(make_network(), shapes).is_complete
    del shapes["1.running_var"]
    match = match_tensors(make_network(), shapes)
    assert not match.is_complete
    assert match.missing == ("1.running_var",)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "backbone."])
def test_one_prefix_before_all_names_is_found(prefix: str) -> None:
    match = match_tensors(make_network(), shapes_of(make_network(), prefix))
    assert (match.is_complete, match.unused, match.naming) == (True, (), OWN)
    assert match.names_in_file["0.weight"] == f"{prefix}0.weight"


def test_other_shapes_and_unused_tensors_are_reported_and_not_matched() -> None:
    shapes = shapes_of(make_network()) | {"2.weight": (9, 4), "2.bias": (9,), "extra": (1,)}
    match = match_tensors(make_network(), shapes)
    assert match.misshaped_names_in_file == {"2.weight": "2.weight", "2.bias": "2.bias"}
    assert "2.weight" not in match.names_in_file
    assert match.share == 7 / 9
    assert match.report() == [
        "7 tensors fit by name and shape (own names)",
        "of another shape, 2: 2.weight is (9, 4), here (2, 4), 2.bias is (9,), here (2,)",
        "not in this network, 1: extra",
    ]


def test_torchvisions_names_of_a_network_of_ours_are_preferred_where_more_of_them_fit() -> None:
    with torch.device("meta"):
        network = models.build("resnet50_v1", 7)
    names = list_torchvision_names(network)
    assert (names["stem.conv.weight"], names["head.bias"]) == ("conv1.weight", "fc.bias")
    match = match_tensors(network, {names[name]: shape for name, shape in shapes_of(network).items()})
    assert (match.naming, match.is_complete) == (TORCHVISION, True)
    assert list_torchvision_names(make_network()) == {}


def test_a_network_that_is_no_resnet_of_ours_has_no_known_differences() -> None:
    assert describe_differences(make_network()) == []
    with torch.device("meta"):
        (v1,), (v15,) = (describe_differences(models.build(name, 7)) for name in ("resnet50_v1", "resnet50_v15"))
    assert "the max pool pads evenly there, SAME here" in v1
    assert "strided convolutions pad evenly there" in v15


def test_a_state_dict_is_described_by_a_few_tensors() -> None:
    assert describe_tensors({"a": (), "b": (2, 3)}) == "It holds 2 tensors: a scalar, b 2x3."
    assert describe_tensors(dict.fromkeys("abcde", (1,))) == "It holds 5 tensors: a 1, b 1, …, e 1."
