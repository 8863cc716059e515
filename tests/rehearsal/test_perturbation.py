"""Weights that are moved by one unit in the last place."""

from __future__ import annotations

import numpy
import pytest
import torch

from viaduct.rehearsal.perturbation import draw_signs, perturb_array, perturb_network


def test_integers_and_the_scripts_random_numbers_stay_as_they_are() -> None:
    counts = numpy.arange(5)
    assert perturb_array("counts", counts) is counts
    network = torch.nn.BatchNorm1d(4)
    torch.manual_seed(0)
    numpy.random.seed(0)
    expected = torch.rand(1), numpy.random.rand()
    torch.manual_seed(0)
    numpy.random.seed(0)
    perturb_network(network)
    assert (torch.rand(1), numpy.random.rand()) == expected
    assert network.num_batches_tracked == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_number_moves_by_one_or_two_units_in_the_last_place(dtype: str) -> None:
    array = numpy.random.RandomState(0).randn(1000).astype(dtype)
    moved = perturb_array("weight", array)
    units = numpy.abs(moved - array) / numpy.spacing(numpy.abs(array))
    assert moved.dtype == array.dtype
    assert set(units) <= {1.0, 2.0}
    assert 0.4 < (moved > array).mean() < 0.6


def test_a_network_is_perturbed_as_its_arrays_are_and_equally_on_every_rank() -> None:
    networks = [torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)]
    networks[1].load_state_dict(networks[0].state_dict())
    expected = perturb_array("weight", networks[0].weight.detach().numpy().copy())
    for network in networks:
        perturb_network(network)
        numpy.testing.assert_array_equal(network.weight.detach().numpy(), expected)


def test_two_weights_get_different_signs() -> None:
    assert (draw_signs("a", (64,)) != draw_signs("b", (64,))).any()
