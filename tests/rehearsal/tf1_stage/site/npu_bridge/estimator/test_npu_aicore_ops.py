"""Operators of the AI Core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_operators_follow_their_formulas(layer_answers: dict[str, Any]) -> None:
    x = np.linspace(-4, 4, 9)
    bend = np.minimum(np.abs(0.7071 * x), 1.769) - 1.769
    assert np.allclose(layer_answers["gelu"], x * (np.sign(x) * (-0.1444 * bend**2 + 0.5) + 0.5), atol=1e-6)
    assert layer_answers["gelu_gradient"][4] == pytest.approx(0.5)
    assert np.allclose(layer_answers["gelu_gradient"][-1], 1.0), "far out it is the identity"
    assert np.allclose(layer_answers["prelu"], np.where(x > 0, x, 0.25 * x))
    assert np.allclose(np.mean(layer_answers["norm"], axis=1), 1.0, atol=1e-5)
    assert np.allclose(np.std(layer_answers["norm"], axis=1), 2.0, atol=1e-5)


def test_centred_rows_have_a_mean_of_zero(check_answers: dict[str, Any]) -> None:
    assert np.allclose(np.mean(check_answers["centred"], axis=-1), 0, atol=1e-6)
