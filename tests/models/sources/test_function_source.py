"""Functions of a user's own module that make a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from viaduct import models
from viaduct.errors import BadValue, UnknownName

MODULE = """
from torch import nn

def by_keyword(depth=1, num_classes=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.Linear(4, num_classes))

def by_position(count):
    return nn.Sequential(nn.Flatten(), nn.Linear(48, count))

def by_any_keyword(**options):
    return by_position(options["num_classes"])

def by_any_position(*counts):
    return by_position(*counts)

def needs_more(classes, depth, *, width):
    return by_position(classes)

def takes_none():
    return by_position(3)

def makes_text(classes):
    return "network"

def breaks(classes):
    return 1 / 0

constant = 3
"""


@pytest.fixture(autouse=True)
def own_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.delitem(__import__("sys").modules, "own_networks", raising=False)


@pytest.mark.parametrize("function", ["by_keyword", "by_position", "by_any_keyword", "by_any_position"])
def test_a_function_is_given_the_number_of_classes(function: str) -> None:
    assert models.build(f"own_networks:{function}", classes=6)(torch.randn(2, 3, 4, 4)).shape == (2, 6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("needs_more", "needs more arguments than the number of classes: depth, width"),
        ("takes_none", "takes no number of classes"),
        ("makes_text", "made a str, not a torch.nn.Module"),
        ("breaks", "fails: ZeroDivisionError"),
        ("constant", "is a int, not a function"),
    ],
)
def test_a_function_that_makes_no_network_is_refused(function: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        models.build(f"own_networks:{function}", classes=6)


def test_an_unknown_function_gets_the_closest_and_an_unknown_module_is_named() -> None:
    with pytest.raises(UnknownName, match="Closest is 'by_position'"):
        models.build("own_networks:by_positions")
    with pytest.raises(BadValue, match="no module 'own_network'"):
        models.build("own_network:by_position")
