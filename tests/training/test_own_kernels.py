"""Choice of our own kernels for a run, and the reason given if it cannot have them."""

from __future__ import annotations

from dataclasses import replace
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from training.tiny_runs import RECIPE, build_normed_network, build_training
from viaduct.errors import BadValue
from viaduct.recipes import Init, Recipe, Thor
from viaduct.training import own_kernels
from viaduct.training.own_kernels import uses_own_kernels
from viaduct.training.precision import PrecisionPlan
from viaduct.training.rundir import RunDir

BF16, FP32 = PrecisionPlan("bf16", False, False), PrecisionPlan("fp32", False, False)
RECIPE = replace(RECIPE, model=build_normed_network)


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_kernels, "find_spec", lambda name: ModuleSpec(name, None))


def wants_own_kernels(recipe: Recipe, plan: PrecisionPlan = BF16, device: str = "cuda", closely: bool = False) -> bool:
    return uses_own_kernels(recipe, plan, device, closely, recipe.mode)


OBSTACLES: dict[str, tuple[dict[str, Any], str]] = {
    "device": ({"recipe": RECIPE, "device": "npu"}, "they are for cuda, and this run is on npu"),
    "precision": ({"recipe": RECIPE, "plan": FP32}, "bf16 or fp16, and this run in fp32"),
    "freeze": ({"recipe": replace(RECIPE, init=Init(freeze="stem"))}, "update the statistics of frozen batch norms"),
    "thor": ({"recipe": replace(RECIPE, optimizer=Thor())}, "THOR observes"),
    "dump": ({"recipe": RECIPE, "closely": True}, "a dump or another callback observes"),
    "whole": (
        {"recipe": replace(RECIPE, mode="graph", compile="whole")},
        "cannot be part of a network compiled whole",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_where_they_cannot_be_auto_does_without_and_on_is_refused(name: str) -> None:
    given, reason = OBSTACLES[name]
    assert not wants_own_kernels(**given)
    with pytest.raises(BadValue, match=f"--kernels on: .*{reason}"):
        wants_own_kernels(**given | {"recipe": replace(given["recipe"], kernels="on")})


def test_without_triton_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_kernels, "find_spec", lambda name: None)
    assert not wants_own_kernels(RECIPE)
    with pytest.raises(BadValue, match="Triton, which is not installed"):
        wants_own_kernels(replace(RECIPE, kernels="on"))


def test_off_is_off() -> None:
    assert wants_own_kernels(RECIPE)
    assert wants_own_kernels(replace(RECIPE, kernels="on"))
    assert not wants_own_kernels(replace(RECIPE, kernels="off"))


def test_a_run_on_the_cpu_has_none_and_refuses_them(run: RunDir) -> None:
    assert build_training(RECIPE, run).computation.fused_count == 0
    with pytest.raises(BadValue, match="they are for cuda, and this run is on cpu"):
        build_training(replace(RECIPE, kernels="on"), run)
