from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from viaduct.benching import peers
from viaduct.errors import BadValue, UnknownName
from viaduct.recipes import load

RESNET = load("resnet18_imagenet").recipe


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which packages are found before all others."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in peers.PACKAGES]:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        package = folder.joinpath(*name.split("__"))
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "error"), [("torchvison", UnknownName), ("plain,kears", UnknownName), (",", BadValue)]
)
def test_a_peer_that_nobody_knows_is_an_error_with_the_list(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="There are: torchvision, timm, plain"):
        peers.parse_names(text, peers.NAMES, "peer")


def test_a_peer_named_twice_runs_once_and_all_means_all() -> None:
    assert peers.parse_names("plain, timm,plain", peers.NAMES, "peer") == ["plain", "timm"]
    assert peers.parse_names("all", peers.NAMES, "peer") == ["torchvision", "timm", "plain"]


def test_a_package_that_does_not_load_is_named_with_its_first_error(packages: Path) -> None:
    write(packages, torchvision="raise RuntimeError('operator torchvision::nms does not exist')")
    found, unavailable = peers.find_peers(["torchvision"], ("eager",), RESNET)
    assert found == []
    assert unavailable["torchvision"].endswith("does not load: RuntimeError: operator torchvision::nms does not exist")


def test_a_package_that_needs_another_is_not_reported_to_be_missing_itself(packages: Path) -> None:
    write(packages, timm="import a_package_that_nobody_has")
    _, unavailable = peers.find_peers(["timm"], ("eager",), RESNET)
    assert "a_package_that_nobody_has" in unavailable["timm"]


def test_a_network_that_a_peer_does_not_have_is_named(packages: Path) -> None:
    write(packages, torchvision="", torchvision__models="", timm="def is_model(name): return False\n")
    _, unavailable = peers.find_peers(["torchvision", "timm"], ("eager",), RESNET)
    assert unavailable == {"torchvision": "it has no resnet18", "timm": "it has no resnet18"}
    _, unavailable = peers.find_peers(["torchvision"], ("eager",), load("amoebanet_d_imagenet").recipe)
    assert unavailable == {"torchvision": "it has no network like amoebanet_d"}


def test_every_recipe_has_a_plain_peer_that_is_not_compiled() -> None:
    for name in ("amoebanet_d_imagenet", "resnet50_imagenet", "shapes_taster"):
        found, unavailable = peers.find_peers(["plain"], ("eager", "compiled"), load(name).recipe)
        assert [peer.mode for peer in found] == ["eager"]
        assert unavailable == {}


def test_the_plain_loop_trains() -> None:
    recipe = load("shapes_taster").recipe
    peer = peers.find_peers(["plain"], (), recipe)[0][0]
    loop = peers.PlainLoop(peer, recipe, torch.device("cpu"), torch.float32)
    before = [parameter.detach().clone() for parameter in loop.network.parameters()]
    loop(2)
    moved = [bool((old != new).any()) for old, new in zip(before, loop.network.parameters(), strict=True)]
    assert moved[0]  # the stem
    assert moved[-1]  # and the classifier; between them some stand behind norms that begin with zero
    assert loop.images.is_contiguous(memory_format=torch.channels_last)
