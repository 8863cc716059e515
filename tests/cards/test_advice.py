from __future__ import annotations

import pytest

from viaduct.cards import CARDS
from viaduct.cards.advice import (
    APEX,
    CONTAINER_IMAGE,
    CUDA_KERNELS,
    DEFAULT_TENSOR_TYPE,
    DEVICE_CAPABILITY,
    TORCH_BUILD,
    TORCH_COMPILE,
    TORCHSCRIPT,
    describe_monitor,
)


@pytest.mark.parametrize("table", [DEVICE_CAPABILITY, TORCHSCRIPT, TORCH_COMPILE, DEFAULT_TENSOR_TYPE])
def test_every_card_is_spoken_of(table: dict[str, object]) -> None:
    assert set(table) == set(CARDS)


@pytest.mark.parametrize("table", [APEX, CUDA_KERNELS, TORCH_BUILD, CONTAINER_IMAGE])
def test_a_source_for_every_card_has_advice_of_its_own(table: dict[str, object]) -> None:
    assert set(table) == {*CARDS, "any"}


def test_the_advice_about_nvidia_smi_names_the_cards_command() -> None:
    assert "`npu-smi info`" in describe_monitor("npu")[0]
    assert all(f"`{card.monitor_command}`" in text for card in CARDS.values() for text in describe_monitor("any"))
