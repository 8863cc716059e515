"""Modules that are moved to a card, and its storages."""

from __future__ import annotations

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_resizing_a_storage_of_the_card_is_refused_in_a_sentence() -> None:
    storage = torch.ones(4, device="npu").untyped_storage()
    with pytest.raises(NotImplementedError, match="does not resize storages on the npu, as FullyShardedDataParallel"):
        storage.resize_(0)
    assert storage.resize_(16).nbytes() == 16
    assert torch.ones(4).untyped_storage().resize_(0).nbytes() == 0


@on("mlu")
def test_moving_a_model_keeps_its_parameters_so_an_optimizer_made_before_trains_it() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    weight = model.weight
    model.mlu()
    assert model.weight is weight
    model(torch.ones(1, 2, device="mlu")).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert torch.equal(weight, before - 1)
