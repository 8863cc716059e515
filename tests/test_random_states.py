"""The host's random states: compared, and restored."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
import torch

from viaduct.random_states import TORCH_CPU, keep_random_states, read_random_states

DRAWS: dict[str, Callable[[], object]] = {
    "Python's random numbers": random.random,
    "NumPy's random numbers": np.random.random,
    TORCH_CPU: lambda: torch.rand(1),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_changes_its_own_state_only(name: str) -> None:
    before = read_random_states()
    assert read_random_states() == before
    DRAWS[name]()
    after = read_random_states()
    assert [other for other in before if before[other] != after[other]] == [name]


def test_states_are_restored_also_after_an_error() -> None:
    before = read_random_states()
    with suppress(ZeroDivisionError), keep_random_states():
        for draw in DRAWS.values():
            draw()
        _ = 1 / 0
    assert read_random_states() == before
