"""LARS both ways, against the formulas of section 13 of the network facts in NumPy."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from training.tiny_runs import RECIPE, build_normed_network
from viaduct.errors import BadValue
from viaduct.recipes import Lars
from viaduct.training.optim import build_optimizer, compute_l2_loss

RATE, MOMENTUM, DECAY, TRUST = 0.1, 0.9, 0.01, 0.1
# The names of `normed`: a kernel, a batch norm, a dense layer.
KERNELS, NORMS, BIAS = ("0.weight", "5.weight"), ("1.weight", "1.bias"), "5.bias"


def network() -> nn.Module:
    torch.manual_seed(3)
    return build_normed_network(4)


def build(model: nn.Module, form: Literal["contrib", "resnext"], **fields: Any) -> torch.optim.Optimizer:
    part = Lars(RATE, MOMENTUM, DECAY, TRUST, form, **fields)
    return build_optimizer(replace(RECIPE, optimizer=part), model)


def gradient(weight: np.ndarray, step: int) -> np.ndarray:
    return np.cos(weight + step)


def steps(optimizer: torch.optim.Optimizer, model: nn.Module, numbers: range) -> dict[str, np.ndarray]:
    for step in numbers:
        for parameter in model.parameters():
            parameter.grad = torch.from_numpy(gradient(parameter.detach().numpy(), step))
        optimizer.step()
    return {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def contrib(name: str, weight: np.ndarray) -> np.ndarray:
    weight, accumulator = weight.astype(np.float64), np.zeros(weight.shape)
    for step in range(5):
        g = gradient(weight, step) + (0 if name in NORMS else DECAY * weight)
        size = np.linalg.norm(weight)
        ratio = TRUST * size / (np.linalg.norm(g) + DECAY * size) if name in KERNELS else 1.0
        accumulator = MOMENTUM * accumulator + g
        weight = weight - RATE * ratio * accumulator
    return weight


def resnext(name: str, weight: np.ndarray) -> np.ndarray:
    weight, accumulator = weight.astype(np.float64), np.zeros(weight.shape)
    for step in range(5):
        g = gradient(weight, step)
        if name in KERNELS:
            size = np.linalg.norm(weight)
            ratio = TRUST * size / (np.linalg.norm(g) + DECAY * size + 1e-5)
            g = ratio * (g + DECAY * weight)
        accumulator = MOMENTUM * accumulator + g
        weight = weight - RATE * (g + MOMENTUM * accumulator)
    return weight


@pytest.mark.parametrize(("form", "formula"), [("contrib", contrib), ("resnext", resnext)])
def test_each_form_is_its_formula_and_spares_norms_and_biases(form: Any, formula: Any) -> None:
    model = network()
    expected = {name: formula(name, parameter.detach().numpy()) for name, parameter in model.named_parameters()}
    for name, ours in steps(build(model, form), model, range(5)).items():
        np.testing.assert_allclose(ours, expected[name], rtol=1e-5, atol=2e-6, err_msg=name)


def test_the_two_forms_differ() -> None:
    ours, other = network(), network()
    first = steps(build(ours, "contrib"), ours, range(2))
    second = steps(build(other, "resnext"), other, range(2))
    assert not np.allclose(first["0.weight"], second["0.weight"], rtol=1e-4)


@pytest.mark.parametrize("zeros", ["weight", "gradient"])
def test_where_a_norm_is_zero_tensorflows_ratio_is_one(zeros: str) -> None:
    model = nn.Linear(3, 2, bias=False)
    optimizer = build(model, "contrib")
    with torch.no_grad():
        if zeros == "weight":
            model.weight.zero_()
        model.weight.grad = torch.zeros(2, 3) if zeros == "gradient" else torch.full((2, 3), 0.5)
        before = model.weight.clone()
        optimizer.param_groups[0]["weight_decay"] = 0.0
        optimizer.step()
    assert torch.equal(model.weight, before - RATE * model.weight.grad)


def test_tensorflows_l2_term_is_in_the_loss_and_resnexts_is_not() -> None:
    model = network()
    decaying = [parameter for name, parameter in model.named_parameters() if name not in NORMS]
    expected = 0.5 * DECAY * sum(float(parameter.detach().square().sum()) for parameter in decaying)
    assert float(compute_l2_loss(build(model, "contrib"))) == pytest.approx(expected, rel=1e-5)
    assert float(compute_l2_loss(build(model, "resnext"))) == 0


def test_what_decays_can_be_chosen_apart_from_what_is_adapted() -> None:
    model = network()
    groups = build(model, "contrib", decay="all").param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [(g["adapted"], g["weight_decay"], {names[id(p)] for p in g["params"]}) for g in groups]
    assert found == [(True, DECAY, set(KERNELS)), (False, DECAY, {*NORMS, BIAS})]


@pytest.mark.parametrize("form", ["contrib", "resnext"])
def test_its_state_survives_a_file_to_the_last_bit(form: Any) -> None:
    model = network()
    optimizer = build(model, form)
    steps(optimizer, model, range(3))
    other = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = build(other, form)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    ours, theirs = steps(optimizer, model, range(3, 5)), steps(resumed, other, range(3, 5))
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trust": 0.0}, r"optimizer.trust is 0.0; it must be above 0"),
        ({"epsilon": -1.0}, r"optimizer.epsilon is -1.0"),
        ({"momentum": 1.0}, r"optimizer.momentum is 1.0"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Lars(**fields)
