"""A short run whose batch norms' averages have not settled."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from training.tiny_runs import RECIPE, build_normed_network
from viaduct.recipes import Checkpoint, LoadedRecipe, Log, Recipe
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training


def build_unsettled_network(classes: int) -> nn.Module:
    """Build a network whose running averages begin far away and go a thousandth of the way in a step."""
    network = build_normed_network(classes)
    norm = network[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    norm.momentum = 0.001
    norm.running_mean.fill_(1000.0)
    return network


SLOW = replace(
    RECIPE, model=build_unsettled_network, epochs=6, log=Log(every_steps=5), checkpoint=Checkpoint(every_minutes=0)
)


def run_recipe(run: RunDir, recipe: Recipe) -> None:
    assert run_training(
        TrainingRequest(LoadedRecipe("tiny", recipe, "Tiny.", None), run, None, "cpu", "auto", "viaduct train")
    ).finished
