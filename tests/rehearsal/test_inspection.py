"""Explanations of a difference between two runs of a PyTorch script."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from viaduct.rehearsal.inspection import (
    FACTS_FILE,
    FORWARD_FILE,
    IDLE_OPTIMIZER_KIND,
    LAST_LEARNING_RATE_KIND,
    MAX_ELEMENTS,
    RANKS_KIND,
    Inspection,
    find_creation_line,
    iterate_tensors,
    remember_line,
    select_plain_values,
    thin_tensor,
)


def test_loaders_are_numbered_whatever_else_was_made_before_them() -> None:
    inspection = Inspection()
    inspection._record_scaler(torch.amp.GradScaler("cpu"))
    for batch_size in (2, 3):
        inspection._record_loader(torch.utils.data.DataLoader([1, 2, 3], batch_size))
    assert [fact.name for fact in inspection.facts] == ["GradScaler", "DataLoader 0", "DataLoader 1"]


def test_two_scalers_have_two_names() -> None:
    inspection = Inspection()
    for enabled in (True, False):
        inspection._record_scaler(torch.amp.GradScaler("cpu", enabled=enabled))
    assert [fact.name for fact in inspection.facts] == ["GradScaler", "GradScaler 1"]


def test_the_line_that_made_a_schedule_is_not_in_its_state() -> None:
    network = nn.Linear(4, 2)
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(network.parameters(), 0.1), 2)
    before = schedule.state_dict()
    remember_line(schedule, ("train.py", 3))
    remember_line(network, ("train.py", 1))
    assert (find_creation_line(schedule), find_creation_line(copy.deepcopy(network))) == (
        ("train.py", 3),
        ("train.py", 1),
    )
    assert schedule.state_dict() == before


def test_what_changes_or_is_private_or_long_is_no_fact() -> None:
    values = {"eps": 1e-5, "training": True, "_hooks": 1, "weight": torch.ones(1), "rates": [0.1] * 9, "size": (3, 3)}
    assert select_plain_values(values) == {"eps": 1e-5, "size": (3, 3)}


def test_a_large_output_is_thinned_and_a_small_one_is_whole() -> None:
    small, large = torch.arange(6.0).reshape(2, 3), torch.arange(2.0 * MAX_ELEMENTS + 1)
    assert thin_tensor(small).tolist() == [0, 1, 2, 3, 4, 5]
    thinned = thin_tensor(large)
    assert len(thinned) <= MAX_ELEMENTS
    assert thinned[:3].tolist() == [0, 3, 6]


def test_tensors_are_found_in_containers_and_empty_ones_are_left_out() -> None:
    first, second = torch.ones(1), torch.zeros(2)
    found = list(iterate_tensors({"a": [first, (second, torch.empty(0))], "b": "text", "c": None}))
    assert [id(tensor) for tensor in found] == [id(first), id(second)]


def train(inspection: Inspection, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make one step as `Observation` reports it."""
    inputs = torch.ones(2, 4)
    inspection.record_inputs(network, (inputs,))
    with torch.no_grad():
        inspection.record_inputs(network, (inputs,))  # an evaluation
    network(inputs).sum().backward()
    optimizer.step()
    inspection.finish_step([optimizer])


def test_only_the_first_step_is_recorded_and_an_optimizer_without_a_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (nn.Module, torch.optim.Optimizer, torch.utils.data.DataLoader, torch.amp.GradScaler):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    for kind in (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    inspection = Inspection()
    inspection.start()
    network = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    idle, optimizer = torch.optim.Adam(network.parameters()), torch.optim.SGD(network.parameters(), 0.5)
    for _ in range(2):
        train(inspection, network, optimizer)
    optimizer.param_groups[0]["lr"] = 0.25
    inspection.write(tmp_path, {"": network}, [optimizer])
    assert list(numpy.load(tmp_path / FORWARD_FILE)) == ["00000 input 0", "00001 0", "00002 1"]
    facts = {(fact["kind"], fact["name"]): fact["settings"] for fact in json.loads((tmp_path / FACTS_FILE).read_text())}
    assert facts["module", "0"]["in_features"] == 4
    assert facts["optimizer", "optimizer 0 group 0"]["lr"] == 0.5
    assert facts[LAST_LEARNING_RATE_KIND, "optimizer 0 group 0 at the end"] == {"lr": 0.25}
    assert facts["optimizer", "optimizer 1 group 0"]["class"] == type(idle).__name__
    assert facts[IDLE_OPTIMIZER_KIND, "optimizer 1"] == {"class": type(idle).__name__}
    assert facts[RANKS_KIND, "ranks"] == {"together": False}
