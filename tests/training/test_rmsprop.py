"""TensorFlow's RMSProp, against its formula in NumPy and against TensorFlow itself."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from training.tiny_runs import RECIPE, build_normed_network, copy_weights, train_recipe
from viaduct.errors import BadValue
from viaduct.recipes import Precision, RmsProp
from viaduct.training.optim import build_optimizer, compute_l2_loss
from viaduct.training.rundir import RunDir

RATES = (0.05, 0.05, 0.02, 0.02, 0.01, 0.01)


def network() -> nn.Module:
    torch.manual_seed(3)
    return build_normed_network(4)


def build(model: nn.Module, **fields: Any) -> torch.optim.Optimizer:
    return build_optimizer(replace(RECIPE, optimizer=RmsProp(**fields)), model)


def gradient(weight: np.ndarray, step: int) -> np.ndarray:
    return np.cos(weight * (step + 1))


def steps(optimizer: torch.optim.Optimizer, model: nn.Module, numbers: range) -> list[np.ndarray]:
    for step in numbers:
        for group in optimizer.param_groups:
            group["lr"] = RATES[step]
        for parameter in model.parameters():
            parameter.grad = torch.from_numpy(gradient(parameter.detach().numpy(), step))
        optimizer.step()
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def formula(weight: np.ndarray, decay: float, epsilon: float) -> np.ndarray:
    """Section 2.8 of the network facts, in float64."""
    weight, square, momentum = weight.astype(np.float64), np.ones(weight.shape), np.zeros(weight.shape)
    for step, rate in enumerate(RATES):
        g = gradient(weight, step) + decay * weight
        square = 0.9 * square + 0.1 * g**2
        momentum = 0.8 * momentum + rate * g / np.sqrt(square + epsilon)
        weight = weight - momentum
    return weight


@pytest.mark.parametrize("epsilon", [1.0, 1e-3])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_it_is_tensorflows_formula_with_epsilon_in_the_root_and_the_rate_in_the_momentum(
    epsilon: float, decay: float
) -> None:
    model = network()
    expected = [formula(parameter.detach().numpy(), decay, epsilon) for parameter in model.parameters()]
    optimizer = build(model, momentum=0.8, epsilon=epsilon, weight_decay=decay, decay="all")
    for ours, reference in zip(steps(optimizer, model, range(6)), expected, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=2e-6)


def test_only_what_decays_is_pulled_to_zero() -> None:
    model = network()
    optimizer = build(model, weight_decay=0.1, decay="weights")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moved = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert moved == [True, False, False, True, False]  # kernel, norm, norm, dense weight, dense bias


def test_the_decay_is_reported_as_the_l2_term_of_the_loss() -> None:
    model = network()
    optimizer = build(model, weight_decay=2e-3, decay="weights")
    expected = 1e-3 * sum(float(parameter.detach().square().sum()) for parameter in (model[0].weight, model[5].weight))
    assert float(compute_l2_loss(optimizer)) == pytest.approx(expected, rel=1e-5)


def test_its_state_survives_a_file_to_the_last_bit() -> None:
    model = network()
    optimizer = build(model, weight_decay=0.01)
    steps(optimizer, model, range(3))
    other = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = build(other, weight_decay=0.01)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for ours, theirs in zip(steps(optimizer, model, range(3, 6)), steps(resumed, other, range(3, 6)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_parameter_without_a_gradient_stays_as_it_is() -> None:
    model = network()
    optimizer = build(model, weight_decay=0.1, decay="all")
    before = model[1].weight.detach().clone()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    optimizer.step()
    assert torch.equal(model[1].weight, before)


def test_a_loss_scale_makes_no_difference(run: RunDir) -> None:
    recipe = replace(RECIPE, optimizer=RmsProp(lr=0.05, weight_decay=1e-3))
    plain = train_recipe(recipe, run)
    scaled = train_recipe(replace(recipe, precision=Precision("fp32", loss_scale=1024.0)), run)
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(scaled)[name], tensor, rtol=1e-4, atol=1e-6)


def test_it_takes_tensorflows_steps() -> None:
    tf = pytest.importorskip("tensorflow", reason="compares with tf.compat.v1.train; install viaduct[tf]").compat.v1
    start = np.random.default_rng(5).normal(size=(4, 3)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        weight = tf.get_variable("weight", initializer=start, use_resource=True)
        rate, step = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        slope = tf.cos(weight * (step + 1)) + 0.01 * weight
        train = tf.train.RMSPropOptimizer(rate, decay=0.9, momentum=0.9, epsilon=1.0).apply_gradients([(slope, weight)])
        session.run(tf.global_variables_initializer())
        for number, value in enumerate(RATES):
            session.run(train, {rate: value, step: number})
        theirs = session.run(weight)
    model = nn.Linear(3, 4, bias=False)
    model.load_state_dict({"weight": torch.from_numpy(start.copy())})
    ours = steps(build(model, weight_decay=0.01), model, range(6))
    np.testing.assert_allclose(ours[0], theirs, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"square_decay": 1.0}, r"optimizer.square_decay is 1.0; it must be at least 0 and below 1"),
        ({"epsilon": -1.0}, r"optimizer.epsilon is -1.0"),
        ({"lr": -1.0}, r"optimizer.lr is -1.0"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        RmsProp(**fields)
