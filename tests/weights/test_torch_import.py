"""State dicts of other origin in and out: exact logits, round trips bit for bit, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from viaduct import models
from viaduct.errors import BadData, BadValue
from viaduct.weights.stored import open_weights
from viaduct.weights.torch_import import export_torch_file, import_torch_file, rename_stored
from weights.torchvision_style import ResNet


def randomise(network: nn.Module) -> nn.Module:
    """Give norms statistics of their own, so that each of them shows."""
    generator = torch.Generator().manual_seed(1)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.running_mean, layer.bias):
                tensor.data.normal_(0, 0.1, generator=generator)
            for tensor in (layer.running_var, layer.weight):
                tensor.data.uniform_(0.5, 1.5, generator=generator)
    return network.eval()


def write(path: Path, held: Any) -> Path:
    torch.save(held, path)
    return path


# SAME padding equals torchvision's for sizes of 32 n + 1; at others the padding differs, and a note says so.
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("resnet50_v15", {}),
        ("resnet50_v1", {}),
        ("resnext50", {"groups": 32, "base": 4, "epsilon": 1e-4}),
    ],
)
def test_logits_are_those_of_torchvisions_network(name: str, theirs: dict[str, Any], tmp_path: Path) -> None:
    reference = randomise(ResNet((3, 4, 6, 3), classes=7, **theirs))
    file = write(tmp_path / "theirs.pth", reference.state_dict())
    written = import_torch_file(file, tmp_path / "ours.safetensors", model=name)
    assert (written.model, written.classes) == (name, 7)
    ours = models.build(name, classes=7).eval()
    ours.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    images = torch.randn(2, 3, 65, 65, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), reference(images), rtol=1e-5, atol=1e-5)
    assert any("not quite torchvision's network" in note for note in written.imported.notes)
    with open_weights(tmp_path / "ours.safetensors") as stored:
        export_torch_file(stored, tmp_path / "back.pth", to="torchvision")
    back = torch.load(tmp_path / "back.pth", weights_only=True)
    assert back.keys() == reference.state_dict().keys()
    assert all(torch.equal(back[key], value) for key, value in reference.state_dict().items())


def test_a_network_of_another_package_is_imported_and_exported_bit_for_bit(
    stand_in_packages: Path, tmp_path: Path
) -> None:
    state = models.build("timm:tiny_vit", classes=5).state_dict()
    file = write(tmp_path / "x.pth", {"state_dict": {f"module.{name}": value for name, value in state.items()}})
    written = import_torch_file(file, tmp_path / "x.safetensors", model="timm:tiny_vit")
    assert written.classes == 5
    with open_weights(tmp_path / "x.safetensors") as stored:
        export_torch_file(stored, tmp_path / "y.pth", to="pytorch")
    back = torch.load(tmp_path / "y.pth", weights_only=True)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


@pytest.mark.parametrize("prefix", ["model.", "backbone.", "module."])
def test_prefixes_and_averages_are_found(prefix: str, stand_in_packages: Path, tmp_path: Path) -> None:
    state = models.build("torchvision:tiny", classes=5).state_dict()
    averaged = {f"{prefix}{name}": value + 1 for name, value in state.items()}
    held = {
        "model": {f"{prefix}{name}": value for name, value in state.items()},
        "state_dict_ema": averaged,
        "epoch": 3,
    }
    file = write(tmp_path / "x.pth", held)
    for ema, added in ((False, 0), (True, 1)):
        out = tmp_path / f"{ema}.safetensors"
        import_torch_file(file, out, model="torchvision:tiny", ema=ema)
        assert torch.equal(load_file(out)["fc.weight"], state["fc.weight"] + added)


def test_averages_that_do_not_exist_are_reported_to_be_missing(tmp_path: Path) -> None:
    state = models.build("mobilenet_v2", classes=3).state_dict()
    save_file(state, tmp_path / "x.safetensors")
    for file in (write(tmp_path / "x.pth", state), tmp_path / "x.safetensors"):
        with pytest.raises((BadData, BadValue), match="has no averaged weights") as refused:
            import_torch_file(file, tmp_path / "y.safetensors", model="mobilenet_v2", ema=True)
        assert "Leave out --ema." in str(refused.value)
    assert not (tmp_path / "y.safetensors").exists()


def test_our_own_network_is_found_by_names_and_shapes(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pth", models.build("mobilenet_v2", classes=3).state_dict())
    assert import_torch_file(file, tmp_path / "x.safetensors").model == "mobilenet_v2"


def test_tensors_of_a_file_are_read_under_the_networks_own_names(tmp_path: Path) -> None:
    reference = ResNet((3, 4, 6, 3), classes=7).state_dict()
    file = write(tmp_path / "x.pth", {f"model.{name}": value for name, value in reference.items()})
    network = models.build("resnet50_v15", classes=7)
    with open_weights(file) as stored:
        renamed = rename_stored(stored, network)
        assert renamed.shapes.keys() == network.state_dict().keys()
        assert torch.equal(renamed.read("head.bias"), reference["fc.bias"])
        assert rename_stored(stored, models.build("resnet20_cifar", classes=7)) is stored


def test_what_is_missing_is_reported_and_nothing_is_written(stand_in_packages: Path, tmp_path: Path) -> None:
    state = models.build("torchvision:tiny", classes=5).state_dict()
    file = write(tmp_path / "x.pth", {**{k: v for k, v in state.items() if "bn1" not in k}, "other": torch.zeros(2)})
    with pytest.raises(BadData, match=r"missing there, 4: bn1.weight") as error:
        import_torch_file(file, tmp_path / "x.safetensors", model="torchvision:tiny")
    assert "not in this network, 1: other" in str(error.value)
    assert not (tmp_path / "x.safetensors").exists()


def test_a_state_dict_that_fits_nothing_says_what_it_holds(tmp_path: Path) -> None:
    save_file({"a.weight": torch.zeros(3, 2), "b": torch.zeros(4)}, tmp_path / "x.safetensors")
    with pytest.raises(BadData, match=r"It holds 2 tensors: a.weight 3x2, b 4"):
        import_torch_file(tmp_path / "x.safetensors", tmp_path / "y.safetensors")


def test_weights_of_another_of_our_networks_are_recognised(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pth", models.build("resnet20_cifar", classes=3).state_dict())
    with pytest.raises(BadData, match="It looks like resnet20_cifar"):
        import_torch_file(file, tmp_path / "y.safetensors", model="resnet20_cifar_v2")


def test_the_right_network_with_other_classes_is_reported_to_be_so(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pth", ResNet((3, 4, 6, 3), classes=7).state_dict())
    with pytest.raises(BadData, match="It holds resnet50_v15 with 7 classes: leave out --classes") as error:
        import_torch_file(file, tmp_path / "x.safetensors", model="resnet50_v15", classes=5)
    assert "looks like" not in str(error.value)


def test_networks_that_fit_equally_are_all_named(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pth", ResNet((3, 4, 6, 3), classes=7).state_dict())
    with pytest.raises(BadData, match="It looks like resnet50_v1 or resnet50_book or resnet50_v15 ") as error:
        import_torch_file(file, tmp_path / "x.safetensors", model="mobilenet_v2")
    assert "(100% of their tensors fit)" in str(error.value)


def test_torchvision_has_no_names_for_every_network(tmp_path: Path) -> None:
    network = models.build("resnet20_cifar", classes=3)
    save_file(network.state_dict(), tmp_path / "x.safetensors", {"model": "resnet20_cifar"})
    with open_weights(tmp_path / "x.safetensors") as stored, pytest.raises(BadValue, match="--to pytorch"):
        export_torch_file(stored, tmp_path / "x.pth", to="torchvision")
