"""Operators of one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_gelu_is_the_tanh_approximation(check_answers: dict[str, Any]) -> None:
    x = np.linspace(-3, 3, 12).reshape(3, 4)
    gelu = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    assert np.allclose(check_answers["gelu"], gelu, atol=1e-6)
