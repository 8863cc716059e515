"""Optimizers that may be captured: those whose own class declares it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from training.tiny_runs import RECIPE
from viaduct.recipes import Lars, RmsProp
from viaduct.training import torch_optimizers
from viaduct.training.optim import build_optimizer
from viaduct.training.optimizer_support import support_optimizer


class Derived(torch_optimizers.SGD):
    """A subclass may compute something else."""


def find_obstacle(kind: type[torch.optim.Optimizer], skips_steps: bool = False, **options: bool) -> str | None:
    optimizer = kind([nn.Parameter(torch.zeros(1))], lr=1.0, **options)  # type: ignore[call-arg]
    return support_optimizer(optimizer).find_capture_obstacle(skips_steps)


@pytest.mark.parametrize("kind", [Derived, torch.optim.Adagrad])
def test_an_optimizer_that_declares_nothing_is_driven_by_the_host(kind: type[torch.optim.Optimizer]) -> None:
    assert find_obstacle(kind) == f"{kind.__name__} may ask the host for its learning rate"


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch_optimizers.SGD])
def test_sgd_that_reads_its_rate_on_the_device_is_captured(kind: type[torch.optim.Optimizer]) -> None:
    assert find_obstacle(kind) is None
    assert "cannot skip a step by itself" in str(find_obstacle(kind, skips_steps=True))


@pytest.mark.parametrize("settings", [RmsProp(), Lars()])
def test_an_optimizer_of_ours_that_reads_its_rate_on_the_device_is_captured(settings: RmsProp | Lars) -> None:
    support = support_optimizer(build_optimizer(replace(RECIPE, optimizer=settings), nn.Linear(2, 2)))
    assert support.find_capture_obstacle(skips_steps=False) is None
    assert "cannot skip a step by itself" in str(support.find_capture_obstacle(skips_steps=True))


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch_optimizers.AdamW])
def test_adamw_is_captured_in_its_fused_form_only(kind: type[torch.optim.Optimizer]) -> None:
    assert "AdamW has no fused form" in str(find_obstacle(kind))
    assert find_obstacle(kind, fused=True) is None
    assert find_obstacle(kind, skips_steps=True, fused=True) is None
