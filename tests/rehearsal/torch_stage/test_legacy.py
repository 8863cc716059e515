"""Tensor types from before torch.device, here with the CPU in the card's place."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from viaduct.rehearsal.torch_stage import legacy
from viaduct.rehearsal.torch_stage.cards import cards


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    warnings.filterwarnings("ignore", "TypedStorage is deprecated")
    monkeypatch.setattr(cards, "device_name", "cpu")
    return legacy.make_types()


def test_a_tensor_of_the_host_or_of_another_type_is_no_instance(
    types: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(torch.ones(1), types["FloatTensor"])
    monkeypatch.setattr(legacy, "get_card_index", lambda tensor: 0)
    assert isinstance(torch.ones(1), types["FloatTensor"])
    assert not isinstance(torch.ones(1).half(), types["FloatTensor"])
    assert not isinstance(1.0, types["FloatTensor"])


def test_numbers_are_a_size_and_a_list_is_values(types: dict[str, Any]) -> None:
    assert types["FloatTensor"]([1, 2]).tolist() == [1.0, 2.0]
    assert types["FloatTensor"](2, 3).shape == types["FloatTensor"](torch.Size([2, 3])).shape == (2, 3)
    assert types["LongTensor"]([1.5]).tolist() == [1]
    assert types["HalfTensor"]().shape == (0,)
    assert types["HalfTensor"]([1], device="meta").device.type == "meta"


def test_a_storage_is_made_from_a_size_or_from_values(types: dict[str, Any]) -> None:
    assert len(types["IntStorage"](3)) == 3
    assert types["IntStorage"]([4, 5]).tolist() == [4, 5]
    assert len(types["IntStorage"]()) == 0
    assert isinstance(types["IntStorage"]([4]), types["IntStorage"])
    assert not isinstance(types["IntStorage"]([4]), types["LongStorage"])


def test_a_tensor_type_has_the_name_that_the_script_uses(types: dict[str, Any]) -> None:
    kind = types["BFloat16Tensor"]
    assert f"{kind.__module__}.{kind.__name__}" == "torch.cpu.BFloat16Tensor"
