"""The catalogue of networks says what the networks say."""

from __future__ import annotations

from math import prod

import pytest

from viaduct import models
from viaduct.errors import UnknownName
from viaduct.models import catalogue
from viaduct.models.sizes import measure

AGAIN = "run `python -m viaduct.models.catalogue`"


def test_the_catalogue_has_every_network() -> None:
    assert list(catalogue.read_entries()) == models.names(), AGAIN


@pytest.mark.lengthy
def test_the_catalogue_has_the_sizes_of_every_network() -> None:
    for name, entry in catalogue.read_entries().items():
        sizes = measure(name)
        found = (sizes.classes, sizes.input_size, sizes.parameters, sizes.macs)
        counted = (entry.parameters.at(entry.classes), entry.macs.at(entry.classes))
        assert (entry.classes, entry.input_size, *counted) == found, f"{name}: {AGAIN}"


@pytest.mark.parametrize("name", ["amoebanet_d", "resnet50_v15", "resnet20_cifar"])
def test_an_entry_is_right_for_any_number_of_classes(name: str) -> None:
    entry, sizes = catalogue.find_entry(name), measure(name, 123)
    assert entry == catalogue.compute_entry(name)
    assert entry.parameters.at(123) == sizes.parameters
    assert entry.parameters_in_training_only.at(123) == sum(
        part.parameters for part in sizes.parts if part.output is None
    )
    assert entry.macs.at(123) == sizes.macs


@pytest.mark.parametrize("name", models.names())
def test_the_layers_of_a_network_are_those_that_it_has_when_it_is_built(name: str) -> None:
    layers, parts = catalogue.find_entry(name).layers, measure(name, 7, layers=True).parts
    stored = [(layer.parameters.at(7), layer.macs.at(7), layer.outputs.at(7), layer.is_spatial) for layer in layers]
    built = [(part.parameters, part.macs, prod(part.output or (0,)), len(part.output or ()) == 3) for part in parts]
    assert stored == built, AGAIN


def test_a_network_that_does_not_exist_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnet50_v1'"):
        catalogue.find_entry("resnet5O_v1")
