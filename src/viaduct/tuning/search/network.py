"""A small network in NumPy: two hidden layers, a policy head and a value head, trained by Adam.

For a few thousand weights and batches of some dozen rows, NumPy is faster than torch. Results are reproducible on one
machine; on another machine BLAS may round differently, so the next point may differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HIDDEN = 48  # units of each hidden layer
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-4


class PolicyValueNetwork:
    """Maps the features of a state to logits of the next decision and to a value."""

    def __init__(self, features: int, actions: int, random: np.random.Generator) -> None:
        def draw(rows: int, columns: int, gain: float = 1.0) -> Array:
            return random.normal(0.0, gain / np.sqrt(rows), (rows, columns))

        self.weights: list[Array] = [
            *(draw(features, HIDDEN), np.zeros(HIDDEN)),
            *(draw(HIDDEN, HIDDEN), np.zeros(HIDDEN)),
            *(draw(HIDDEN, actions, 0.1), np.zeros(actions)),
            *(draw(HIDDEN, 1, 0.1), np.zeros(1)),
        ]
        self.first_moments = [np.zeros_like(weight) for weight in self.weights]
        self.second_moments = [np.zeros_like(weight) for weight in self.weights]
        self.steps = 0

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return logits [rows, actions] and values [rows]."""
        _, _, logits, value = self._forward(x)
        return logits, value

    def _forward(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Return both hidden layers, the logits and the values."""
        w1, b1, w2, b2, w3, b3, w4, b4 = self.weights
        hidden1 = np.tanh(x @ w1 + b1)
        hidden2 = np.tanh(hidden1 @ w2 + b2)
        return hidden1, hidden2, hidden2 @ w3 + b3, (hidden2 @ w4 + b4)[:, 0]

    def train_value(self, x: Array, target: Array) -> None:
        """Take one step on the squared error of the values."""
        hidden1, hidden2, logits, value = self._forward(x)
        self._backward(x, hidden1, hidden2, np.zeros_like(logits), (value - target) / len(x))

    def train_policy(self, x: Array, target: Array, allowed: Array) -> None:
        """Take one step on the cross entropy of the decisions; `allowed` is 1 for the decisions of each row's state."""
        hidden1, hidden2, logits, value = self._forward(x)
        gradient = (softmax(logits, allowed) - target) / len(x)
        self._backward(x, hidden1, hidden2, gradient, np.zeros_like(value))

    def _backward(self, x: Array, hidden1: Array, hidden2: Array, d_logits: Array, d_value: Array) -> None:
        _, _, w2, _, w3, _, w4, _ = self.weights
        d_hidden2 = (d_logits @ w3.T + d_value[:, None] * w4[:, 0]) * (1 - hidden2**2)
        d_hidden1 = (d_hidden2 @ w2.T) * (1 - hidden1**2)
        self._update(
            [
                *(x.T @ d_hidden1, d_hidden1.sum(0), hidden1.T @ d_hidden2, d_hidden2.sum(0)),
                *(hidden2.T @ d_logits, d_logits.sum(0), hidden2.T @ d_value[:, None], d_value.sum(keepdims=True)),
            ]
        )

    def _update(self, gradients: list[Array]) -> None:
        """Take a step of Adam with decoupled weight decay."""
        self.steps += 1
        scale = LEARNING_RATE * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for weight, first, second, gradient in zip(
            self.weights, self.first_moments, self.second_moments, gradients, strict=True
        ):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            weight -= scale * first / (np.sqrt(second) + 1e-8) + LEARNING_RATE * WEIGHT_DECAY * weight


def softmax(logits: Array, allowed: Array) -> Array:
    """Return the probability of each action; it is 0 for actions that are not allowed."""
    shifted = np.where(allowed > 0, logits, -np.inf)
    powers = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
