from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

from viaduct.profiling.module_hooks import ModuleHooks, list_modules


class Failing(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")


class DataParallel(nn.Module):
    """A wrapper by its name, as torch's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def count_hooks(network: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


def test_all_hooks_are_removed() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hooks = ModuleHooks()
    hooks.add_network(network)
    assert count_hooks(network) == 0
    hooks.attach()
    assert count_hooks(network) == 6
    hooks.detach()
    assert count_hooks(network) == 0


def test_a_compiled_network_is_not_hooked_inside() -> None:
    compiled: Any = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="eager")
    assert [name for name, _ in list_modules(compiled)] == ["Sequential"]


def test_names_are_those_of_the_network_within_a_wrapper() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert [name for name, _ in list_modules(DataParallel(network))] == ["Sequential", "0", "1", "1.0"]


def test_an_error_in_a_module_closes_its_annotation() -> None:
    network = nn.Sequential(nn.Linear(2, 2), Failing())
    hooks = ModuleHooks()
    hooks.add_network(network)
    hooks.attach()
    with profile() as profiler:
        with pytest.raises(ValueError, match="no"):
            network(torch.ones(1, 2))
        torch.ones(1)
    assert hooks.open_annotations == []
    names = {event.key for event in profiler.key_averages()}
    assert {"viaduct.module:Sequential", "viaduct.module:0", "viaduct.module:1"} <= names


def test_a_second_network_keeps_apart_from_the_first() -> None:
    hooks = ModuleHooks()
    hooks.add_network(nn.Sequential(nn.Linear(2, 2)))
    hooks.add_network(nn.ModuleList([nn.Linear(2, 2)]))
    assert list(hooks.names.values()) == ["Sequential", "0", "ModuleList.ModuleList", "ModuleList.0"]
