"""Names of MindSpore's networks, and how those networks differ from ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.weights import mindspore_names, recognise
from viaduct.weights.importing import read_values
from viaduct.weights.mindspore import MindsporeFile
from viaduct.weights.mindspore_names import list_layouts
from weights.mindspore_files import checkpoint
from weights.zoo_resnet import build, in_zoo, same


@pytest.mark.parametrize("prefix", ["", "network.", "backbone."])
def test_the_model_zoos_names_are_converted_to_ours(prefix: str, tmp_path: Path) -> None:
    model, fresh = build(), build(classes=5)
    for tensor in fresh.state_dict().values():
        tensor.zero_()
    (tmp_path / "w.ckpt").write_bytes(checkpoint(in_zoo(model, prefix)))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        values = read_values(fresh, file)
    assert not values.imported.notes
    assert same(values.tensors, {n: t for n, t in model.state_dict().items() if "num_batches" not in n})


def test_a_network_that_pads_otherwise_is_noted(tmp_path: Path) -> None:
    (tmp_path / "w.ckpt").write_bytes(checkpoint(in_zoo(build())))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        (v15,) = read_values(build("resnet50_v15"), file).imported.notes
        (v1,) = read_values(build("resnet50_v1"), file).imported.notes
    assert "epsilon of 0.0001 there, 1e-05 here" in v15
    assert "pad" not in v15
    assert "strided convolutions pad SAME there" in v1


@pytest.mark.parametrize("name", ["resnet18_v1", "resnet20_cifar", "mobilenet_v2", "amoebanet_d"])
def test_a_network_that_neither_reference_has_keeps_our_names(name: str) -> None:
    model = recognise.build_on_meta(name, 7)
    assert list(list_layouts(model)) == ["own"]
    sources = [link.variables[0] for link in list_layouts(model)["own"]]
    assert len(set(sources)) == len(sources) == len([key for key in model.state_dict() if "num_batches" not in key])


def test_a_shortcut_is_named_by_layout_and_a_prefix_is_part_of_the_layouts_name() -> None:
    model = recognise.build_on_meta("resnet50_v1", 7)
    names = {kind: {link.tensor: link.variables[0] for link in links} for kind, links in list_layouts(model).items()}
    assert names["zoo"]["stages.0.2.norm1.weight"] == "layer1.2.bn1.gamma"
    assert names["zoo"]["stages.2.0.shortcut.norm.running_var"] == "layer3.0.down_sample_layer.1.moving_variance"
    assert names["mindcv"]["stages.2.0.shortcut.conv.weight"] == "layer3.0.down_sample.0.weight"
    assert (names["zoo"]["head.bias"], names["mindcv"]["head.bias"]) == ("end_point.bias", "classifier.bias")
    assert (names["zoo"]["stem.conv.weight"], names["own"]["stem.norm.bias"]) == ("conv1.weight", "stem.norm.beta")
    layouts = mindspore_names.list_wrapped_layouts(model, ["network.conv1.weight"])
    assert {name for name in layouts if "network." in name} == {"zoo network.", "mindcv network.", "own network."}
    (first,) = layouts["mindcv network."][0].variables
    assert first.startswith("network.")
