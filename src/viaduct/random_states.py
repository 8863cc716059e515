"""The random states of Python, NumPy and torch on the CPU, to detect draws of numbers and to undo them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

TORCH_CPU = "torch's random numbers on the CPU"  # name of this state


def read_random_states() -> dict[str, object]:
    """Return the states, by their names in messages. A state that has not changed shows that no number was drawn."""
    return {
        "Python's random numbers": random.getstate(),
        "NumPy's random numbers": pickle.dumps(np.random.get_state(legacy=False)),
        TORCH_CPU: torch.get_rng_state().numpy().tobytes(),
    }


@contextmanager
def keep_random_states() -> Iterator[None]:
    """Restore the states at the end of the block."""
    python, arrays, tensors = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_rng_state(tensors)
