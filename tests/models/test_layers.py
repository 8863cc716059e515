"""The table of layers says what the networks say."""

from __future__ import annotations

from math import prod

import pytest

from viaduct import models
from viaduct.errors import UnknownName
from viaduct.models.layers import read_file, read_layers
from viaduct.models.sizes import measure

AGAIN = "run `python -m viaduct.models.layers`"


def test_the_table_has_every_network() -> None:
    assert list(read_file()) == models.names(), AGAIN


@pytest.mark.parametrize("name", models.names())
def test_the_layers_of_a_network_are_those_that_it_has_when_it_is_built(name: str) -> None:
    layers, parts = read_layers(name), measure(name, 7, layers=True).parts
    stored = [(layer.parameters.at(7), layer.macs.at(7), layer.outputs.at(7), layer.is_spatial) for layer in layers]
    built = [
        (part.parameters, part.multiplications, prod(part.output or (0,)), len(part.output or ()) == 3)
        for part in parts
    ]
    assert stored == built, AGAIN


def test_a_network_that_does_not_exist_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnet50_v1'"):
        read_layers("resnet5O_v1")
