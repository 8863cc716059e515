"""Modules that are moved to a card."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on


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
