"""Generators of the card and of the host."""

from __future__ import annotations

import pytest
import torch

from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.torch_stage.generators import Generator, check_generator

DEVICE = "privateuseone"  # torch's name of the device until a stage renames it


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "device_name", DEVICE)
    monkeypatch.setattr(cards, "accepted_types", {DEVICE})


def test_an_operator_of_the_card_refuses_a_generator_made_for_the_host() -> None:
    with pytest.raises(RuntimeError, match=f"Expected a '{DEVICE}' device type for generator but found 'cpu'"):
        check_generator(Generator())
    assert check_generator(torch.default_generator) is torch.default_generator


def test_a_generator_of_the_card_draws_from_a_state_of_its_own() -> None:
    generator = Generator(f"{DEVICE}:1").manual_seed(7)
    assert generator.device == torch.device(DEVICE, 1)
    assert check_generator(generator) is generator
    state = torch.get_rng_state()
    first = torch.randn(4, generator=generator)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.randn(4, generator=generator.manual_seed(7)), first)


def test_generators_of_the_host_are_those_of_torch() -> None:
    assert type(Generator("cpu")) is torch._C.Generator
    assert Generator().device == torch.device("cpu")
    assert isinstance(torch.default_generator, Generator)
    assert not isinstance(1, Generator)
