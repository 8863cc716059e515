"""Names of networks of other packages: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.errors import BadValue, UnknownName
from viaduct.models import sources


def test_our_own_names_are_not_foreign() -> None:
    assert not any(sources.is_foreign(name) for name in models.names())
    assert sources.is_foreign("timm:resnet50")


@pytest.mark.parametrize("name", ["timm:tiny_conv", "timm:tiny_vit", "torchvision:tiny"])
def test_a_network_of_a_source_has_the_classes_that_were_requested(name: str, stand_in_packages: Path) -> None:
    assert models.build(name, classes=7)(torch.randn(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize("name", ["timm:", ":x", ":"])
def test_half_a_name_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match="names no network"):
        models.build(name)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_package_that_does_not_exist_is_refused_with_the_install_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(__import__("sys").modules, package, raising=False)
    with pytest.raises(BadValue, match=f"pip install {package}"):
        sources.import_package(package)


def test_a_package_that_breaks_when_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "timm", raising=False)
    with pytest.raises(BadValue, match="RuntimeError: operator nms does not exist"):
        sources.build("timm:resnet50", 10)


def test_a_network_without_a_classifier_is_refused(stand_in_packages: Path) -> None:
    with pytest.raises(BadValue, match="timm:headless has no classifier of 7 outputs"):
        models.build("timm:headless", classes=7)


def test_names_match_a_pattern_and_carry_their_source(stand_in_packages: Path) -> None:
    assert sources.list_names("timm", "*vit*") == ["timm:tiny_vit", "timm:tiny_vit_32"]
    assert sources.list_names("torchvision") == ["torchvision:tiny"]
    with pytest.raises(UnknownName, match="tiny_conv"):
        sources.list_names("timm", "tiny_con")
    with pytest.raises(UnknownName, match="timm"):
        sources.list_names("tim")


def test_the_classifier_is_the_last_layer_of_so_many_outputs() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert sources.find_classifier(network, 3) == "1"
    assert sources.find_classifier(network, 4) is None
