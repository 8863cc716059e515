"""Patterns that mean names, and weights that stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from training.tiny_runs import RECIPE, build_normed_network, build_training, change_part, copy_weights, train_recipe
from viaduct import models
from viaduct.errors import BadValue
from viaduct.recipes import Init
from viaduct.training.freezing import freeze, match_patterns
from viaduct.training.rundir import RunDir

NAMES = ["stem.conv.weight", "stages.0.conv.weight", "stages.0.norm.bias", "stages.1.conv.weight", "head.weight"]


@pytest.mark.parametrize(
    ("patterns", "meant"),
    [
        ("", []),
        ("head.*", ["head.weight"]),
        ("head", ["head.weight"]),
        ("stages.0", ["stages.0.conv.weight", "stages.0.norm.bias"]),
        ("stem, head", ["stem.conv.weight", "head.weight"]),
        ("*.norm.*", ["stages.0.norm.bias"]),
        ("stages.?.conv.weight", ["stages.0.conv.weight", "stages.1.conv.weight"]),
    ],
)
def test_a_pattern_means_names_and_what_is_below_them(patterns: str, meant: list[str]) -> None:
    assert sorted(match_patterns(patterns, NAMES, "--freeze")) == sorted(meant)


@pytest.mark.parametrize(("pattern", "near"), [("heads.*", "head"), ("stage.0", "stages.0"), ("fc", "stem")])
def test_a_pattern_that_means_nothing_is_answered_with_the_closest(pattern: str, near: str) -> None:
    with pytest.raises(BadValue, match="matches no name") as refusal:
        match_patterns(f"stem,{pattern}", NAMES, "--freeze")
    assert near in refusal.value.hints[0]


@pytest.mark.parametrize("name", ["resnet20_cifar", "amoebanet_d", "resnext50"])
def test_all_but_the_head_of_every_network(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name, classes=3)
    freeze(model, "all but head")
    learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert learning == ["head.weight", "head.bias"]


def test_something_must_be_left_to_train() -> None:
    with pytest.raises(BadValue, match="nothing to train"):
        freeze(nn.Linear(2, 2), "*")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "O2"])
def test_frozen_weights_and_statistics_stay_as_they_are(precision: str, run: RunDir) -> None:
    recipe = change_part(
        replace(RECIPE, model=build_normed_network, init=Init(freeze="0,1")), "precision", compute=precision
    )
    before = copy_weights(build_training(recipe, run))
    after = copy_weights(train_recipe(recipe, run))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"5.weight", "5.bias"}  # neither running_mean nor num_batches_tracked


def test_norms_that_still_learn_keep_counting(run: RunDir) -> None:
    recipe = replace(RECIPE, model=build_normed_network, init=Init(freeze="0"))
    before = copy_weights(build_training(recipe, run))
    after = copy_weights(train_recipe(recipe, run))
    assert torch.equal(before["0.weight"], after["0.weight"])
    assert not torch.equal(before["1.running_mean"], after["1.running_mean"])


def test_nothing_is_kept_of_frozen_weights_in_the_optimizer(run: RunDir) -> None:
    done = train_recipe(replace(RECIPE, model=build_normed_network, init=Init(freeze="all but 5")), run)
    assert len(done.optimizer.state) == 2
