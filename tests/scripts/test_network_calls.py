"""The networks of a script are the modules that no other module calls."""

from __future__ import annotations

import torch
from torch import nn

from viaduct.scripts.network_calls import NetworkCalls


def test_roots_are_the_modules_that_no_module_calls() -> None:
    network, loss = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.MSELoss()
    seen: list[str] = []
    with NetworkCalls(lambda module, args: seen.append(type(module).__name__), lambda *what: seen.append("end")):
        loss(network(torch.ones(1, 2)), torch.zeros(1, 2))
    network(torch.ones(1, 2))
    assert seen == ["Sequential", "end", "MSELoss", "end"]
    assert not torch.nn.modules.module._has_any_global_hook()


def test_a_root_that_failed_does_not_hide_the_next() -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    seen: list[str] = []
    with NetworkCalls(lambda module, args: seen.append(type(module).__name__)):
        for width in (3, 2):
            try:
                network(torch.ones(1, width))
            except RuntimeError:
                seen.append("failed")
    assert seen == ["Sequential", "failed", "Sequential"]
