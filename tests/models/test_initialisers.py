"""Drawn weights have the moments and the bounds that TensorFlow's have."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from viaduct.models.initialisers import (
    CUT_NORMAL_DEVIATION,
    fill_variance_scaling,
    nvidia,
    slim,
    small_normal,
    tf_layers,
)
from viaduct.models.resnext import initialise as resnext


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_other_layers_are_left_alone() -> None:
    norm = nn.BatchNorm2d(3)
    nn.init.constant_(norm.weight, 7.0)
    for initialiser in (tf_layers, small_normal, nvidia, resnext, slim):
        initialiser(norm)
    assert norm.weight.tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_variance_is_scale_over_inputs_and_tails_are_cut(scale: float) -> None:
    weight = torch.empty(256, 64, 3, 3)
    fill_variance_scaling(weight, scale)
    wanted = math.sqrt(scale / (64 * 3 * 3))
    assert weight.std().item() == pytest.approx(wanted, rel=0.01)
    assert abs(weight.mean().item()) < 0.01 * wanted
    cut = 2 * wanted / CUT_NORMAL_DEVIATION
    assert 0.99 * cut < weight.abs().max().item() <= cut * (1 + 1e-6)


def test_cut_normal_deviation_is_what_calculus_says() -> None:
    density = math.exp(-2.0) / math.sqrt(2 * math.pi)
    inside = math.erf(math.sqrt(2.0))
    assert pytest.approx(math.sqrt(1 - 4 * density / inside), abs=1e-9) == CUT_NORMAL_DEVIATION


def test_tensorflows_classifier_is_glorot_uniform_with_a_bias_of_zero() -> None:
    layer = nn.Linear(2048, 1001)
    tf_layers(layer)
    limit = math.sqrt(6 / (2048 + 1001))
    assert 0.999 * limit < layer.weight.abs().max().item() <= limit
    assert layer.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.01)
    assert not layer.bias.any()


@pytest.mark.parametrize("layer", [nn.Conv2d(64, 64, 3), nn.Linear(512, 100)])
def test_the_books_weights_are_small_and_normal(layer: nn.Conv2d | nn.Linear) -> None:
    small_normal(layer)
    assert layer.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert layer.weight.abs().max().item() > 0.03


@pytest.mark.parametrize("layer", [nn.Conv2d(64, 64, 3), nn.Linear(576, 100)])
def test_v15_draws_convolutions_and_classifier_twice_as_wide(layer: nn.Conv2d | nn.Linear) -> None:
    nvidia(layer)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 576), rel=0.02)
    assert not isinstance(layer, nn.Linear) or not layer.bias.any()


def test_resnexts_grouped_kernel_is_uniform_as_if_it_were_one() -> None:
    layer = nn.Conv2d(256, 256, 3, groups=32, bias=False)
    resnext(layer)
    limit = math.sqrt(6 / (9 * 8 + 9 * 256))
    assert 0.999 * limit < layer.weight.abs().max().item() <= limit
    assert layer.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def test_resnexts_classifier_is_scaled_by_its_inputs() -> None:
    layer = nn.Linear(2048, 100)
    resnext(layer)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(1 / 2048), rel=0.02)
    assert not layer.bias.any()


@pytest.mark.parametrize(("layer", "outputs"), [(nn.Conv2d(16, 128, (1, 7)), 7 * 128), (nn.Linear(500, 128), 128)])
def test_slims_normal_has_its_variance_before_it_is_cut(layer: nn.Conv2d | nn.Linear, outputs: int) -> None:
    slim(layer)
    deviation = math.sqrt(1.3 * 2 / outputs)
    assert layer.weight.std().item() == pytest.approx(deviation * CUT_NORMAL_DEVIATION, rel=0.02)
    assert 0.99 * 2 * deviation < layer.weight.abs().max().item() <= 2 * deviation * (1 + 1e-6)
