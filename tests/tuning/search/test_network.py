"""The policy and value network: its gradients, masks, and that training changes what it was asked to change."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.tuning.search.network import Array, PolicyValueNetwork, softmax

FEATURES, ACTIONS = 5, 4


def make_network() -> PolicyValueNetwork:
    return PolicyValueNetwork(FEATURES, ACTIONS, np.random.default_rng(1))


def make_rows(count: int = 8) -> Array:
    return np.random.default_rng(2).normal(size=(count, FEATURES))


def test_an_action_that_is_not_allowed_has_probability_0() -> None:
    shares = softmax(np.array([[50.0, 1.0, 1.0]]), np.array([[0.0, 1.0, 1.0]]))
    assert shares.tolist() == [[0.0, 0.5, 0.5]]


def test_gradients_are_those_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, target = make_network(), make_rows(), np.linspace(0, 1, 8)
    policy_target, allowed = np.full((8, ACTIONS), 0.25), np.ones((8, ACTIONS))

    def value_loss() -> float:
        return float(((network.predict(x)[1] - target) ** 2).mean() / 2)

    def policy_loss() -> float:
        return float(-(policy_target * np.log(softmax(network.predict(x)[0], allowed))).sum(1).mean())

    gradients: list[list[Array]] = []
    monkeypatch.setattr(network, "_update", gradients.append)
    network.train_value(x, target)
    network.train_policy(x, policy_target, allowed)
    for loss, gradient in ((value_loss, gradients[0]), (policy_loss, gradients[1])):
        for weight, analytic in zip(network.weights, gradient, strict=True):
            before = weight.flat[0]
            weight.flat[0] = before + 1e-5
            above = loss()
            weight.flat[0] = before - 1e-5
            slope = (above - loss()) / 2e-5
            weight.flat[0] = before
            assert analytic.shape == weight.shape
            assert analytic.flat[0] == pytest.approx(slope, abs=1e-7)


def test_training_learns_values_and_decisions() -> None:
    network, x = make_network(), make_rows()
    target = np.linspace(0, 1, 8)
    decisions, allowed = np.tile([0.0, 1.0, 0.0, 0.0], (8, 1)), np.tile([1.0, 1.0, 1.0, 0.0], (8, 1))
    for _ in range(500):
        network.train_value(x, target)
        network.train_policy(x, decisions, allowed)
    logits, values = network.predict(x)
    assert np.abs(values - target).max() < 0.1
    assert softmax(logits, allowed)[:, 1].min() > 0.9
