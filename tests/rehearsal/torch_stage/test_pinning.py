"""Pinned memory, of loaders and of factories."""

from __future__ import annotations

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("mlu")
def test_a_loader_pins_its_batches() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(4.0))
    assert not torch.ones(1).is_pinned()
    for options in ({}, {"num_workers": 1}):
        seen = [batch[0] for batch in DataLoader(data, batch_size=2, pin_memory=True, **options)]
        assert all(batch.is_pinned() for batch in seen)
        assert torch.cat([batch.to("mlu", non_blocking=True) for batch in seen]).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.ones(1, device="mlu").pin_memory()


@on("cuda")
def test_factories_make_pinned_memory_and_scripted_code_still_finds_them() -> None:
    for made in (
        torch.empty(3, pin_memory=True),
        torch.zeros(2, 2, pin_memory=True),
        torch.tensor([1], pin_memory=True),
    ):
        assert made.is_pinned()
        assert made.device.type == "cpu"
    assert torch.zeros_like(torch.ones(2), pin_memory=True).tolist() == [0, 0]
    assert torch.ones(2).new_full((2,), 3.0, pin_memory=True).is_pinned()
    assert not torch.empty(3).is_pinned()
