"""The random functions of torch.npu and torch.mlu. The card's generator is the host's (see generators.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, resolve_card_index


def get_rng_state(device: Any = None) -> torch.Tensor:
    resolve_card_index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    resolve_card_index(device)
    torch.default_generator.set_state(new_state.cpu())


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(cards.count)]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def seed() -> None:
    torch.default_generator.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    return torch.default_generator.initial_seed()
