"""Random number generators of a run: seeding, determinism, and their states in checkpoints."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from viaduct.devices.base import Device
from viaduct.recipes import Recipe


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # NumPy takes 32 bits
    torch.manual_seed(seed)


def seed_run(recipe: Recipe) -> None:
    """Seed all generators from the recipe, and set whether torch is deterministic."""
    seed_generators(recipe.seed)
    # Only if it changes something: the call imports torch's compiler, which takes seconds.
    if recipe.deterministic != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(recipe.deterministic)
    # cuDNN's search for the fastest algorithm may choose differently each time.
    torch.backends.cudnn.benchmark = not recipe.deterministic
    torch.backends.cudnn.deterministic = recipe.deterministic


def seed_new_rank(seed: int, step: int, rank: int) -> None:
    """Seed the generators of a rank that did not exist when the checkpoint was written."""
    sequence = np.random.SeedSequence([seed, step, rank])
    seed_generators(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))  # 63 bits: torch takes no more


def read_generator_states(device: Device) -> dict[str, Any]:
    """Return the states of all generators as tensors and plain values."""
    name, keys, *position = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, np.int64)), *position),
        "torch": torch.get_rng_state(),
        "device": device.get_random_state(),
    }


def restore_generator_states(states: dict[str, Any], device: Device) -> None:
    """Set all generators to states that `read_generator_states` returned."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *position = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *position))
    torch.set_rng_state(states["torch"])
    if states["device"] is not None and device.get_random_state() is not None:
        device.set_random_state(states["device"])
