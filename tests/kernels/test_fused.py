"""The report of `fuse`, the reasons against it, and the way back."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

from viaduct.kernels.copies import Copies
from viaduct.kernels.fused import FuseReport, find_obstacle, is_fused, read_report, set_report, unfuse


def run_nothing(x: torch.Tensor) -> torch.Tensor:
    return x


def test_a_forward_that_others_replaced_stays_replaced() -> None:
    network = nn.Sequential(nn.ReLU())
    network[0].forward = partial(run_nothing)
    assert not is_fused(network[0])
    assert "forward" in vars(unfuse(network)[0])


def test_ours_is_removed_with_report_and_hooks_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    before = set(vars(network)), len(network._forward_hooks)
    seen: list[str] = []
    network.register_forward_hook(lambda *_: seen.append("hook"))
    Copies(torch.float32).attach(network)
    set_report(network, FuseReport(fused=("0",)))
    monkeypatch.setattr(run_nothing, "__module__", "viaduct.kernels.fuse")
    network[1].forward = partial(run_nothing)
    assert is_fused(network[1])
    assert unfuse(network) is network
    network(torch.randn(1, 3, 4, 4))
    assert seen == ["hook"]
    assert (set(vars(network)), len(network._forward_hooks) - 1) == before
    assert not network._forward_pre_hooks
    assert not is_fused(network[1])


def test_a_report_is_found_inside_a_wrapper_and_is_no_state() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    names = list(network.state_dict())
    assert read_report(nn.Sequential(network)) is None
    report = set_report(network, FuseReport(fused=("0",)))
    assert read_report(nn.Sequential(copy.deepcopy(network))) == report
    assert list(network.state_dict()) == names


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (nn.ReLU(), "the model has no parameters"),
        (nn.Conv2d(3, 4, 1), "they are for cuda, and the model is on cpu"),
        (nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, device="meta")]), "the model is on cpu and meta"),
    ],
)
def test_an_obstacle_is_named(network: nn.Module, reason: str) -> None:
    assert reason in str(find_obstacle(network, torch.bfloat16))


def test_a_compiled_network_is_refused_by_its_name_for_the_original() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    network._orig_mod = nn.ReLU()
    assert "fuse it before" in str(find_obstacle(network, torch.bfloat16))


def test_parts_with_one_reason_are_counted_together() -> None:
    unfused = (("a", "it is dilated"), ("stem", "its size is odd"), ("b", "it is dilated"))
    assert str(FuseReport(("c", "d"), unfused)).splitlines() == [
        "2 parts run on kernels of viaduct",
        "a and 1 more: as written, because it is dilated",
        "stem: as written, because its size is odd",
    ]
    assert str(FuseReport(obstacle="no card")) == "no part runs on kernels of viaduct: no card"
