"""Random states: seeded, stored and restored, and of their own on a new rank."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from training.tiny_runs import (
    RECIPE,
    build_training,
)
from viaduct import devices
from viaduct.training.random_generators import (
    read_generator_states,
    restore_generator_states,
    seed_generators,
    seed_new_rank,
)
from viaduct.training.rundir import RunDir


def test_deterministic_is_asked_of_torch_and_taken_back(run: RunDir) -> None:
    build_training(replace(RECIPE, deterministic=True), run)
    assert torch.are_deterministic_algorithms_enabled()
    build_training(RECIPE, run)
    assert not torch.are_deterministic_algorithms_enabled()


def draw() -> list[float]:
    """Draw from each generator."""
    return [random.random(), float(np.random.rand()), float(torch.rand(1)), float(np.random.randn())]


def test_restored_generators_draw_the_same_numbers_again() -> None:
    device, _ = devices.pick("cpu")
    seed_generators(1)
    np.random.randn()  # draws two numbers and keeps the second
    states = torch.load(save_and_open(read_generator_states(device)), weights_only=True)
    expected = draw()
    seed_generators(2)
    assert draw() != expected
    restore_generator_states(states, device)
    assert draw() == expected


def save_and_open(states: dict[str, Any]) -> io.BytesIO:
    """Store states as a checkpoint does, where tuples and tensors may come back in another form."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return file


def test_a_seed_decides_what_every_generator_draws() -> None:
    drawn = []
    for seed in (5, 6, 5, 2**40):
        seed_generators(seed)
        drawn.append(draw())
    assert drawn[0] == drawn[2]
    assert all(a != b for a, b in zip(drawn[0], drawn[1], strict=True))


def test_a_new_rank_draws_what_no_other_rank_or_step_draws() -> None:
    drawn = []
    for seed, step, rank in ((1, 40, 2), (1, 40, 3), (1, 41, 2), (2, 40, 2), (1, 40, 2)):
        seed_new_rank(seed, step, rank)
        drawn.append(tuple(draw()))
    assert len(set(drawn[:4])) == 4
    assert drawn[4] == drawn[0]
