"""The catalogue of networks says what the networks say."""

from __future__ import annotations

import pytest

from viaduct import models
from viaduct.models import catalogue
from viaduct.models.sizes import measure


@pytest.mark.lengthy
def test_the_catalogue_has_every_network_with_its_sizes() -> None:
    assert list(catalogue.read_entries()) == models.names(), "run `python -m viaduct.models.catalogue`"
    for name, entry in catalogue.read_entries().items():
        sizes = measure(name)
        found = (sizes.classes, sizes.input_size, sizes.parameters, sizes.multiplications)
        counted = (entry.parameters.at(entry.classes), entry.macs.at(entry.classes))
        assert (entry.classes, entry.input_size, *counted) == found, f"{name}: run `python -m viaduct.models.catalogue`"


@pytest.mark.parametrize("name", ["amoebanet_d", "resnet50_v15", "resnet20_cifar"])
def test_an_entry_is_right_for_any_number_of_classes(name: str) -> None:
    entry, sizes = catalogue.read_entries()[name], measure(name, 123)
    assert entry == catalogue.compute_entry(name)
    assert entry.parameters.at(123) == sizes.parameters
    assert entry.parameters_in_training_only.at(123) == sizes.parameters_in_training_only
    assert entry.macs.at(123) == sizes.multiplications
