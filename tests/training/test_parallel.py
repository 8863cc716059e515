"""The strategy of a run follows from its ranks and its layout."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from training.tiny_runs import RECIPE
from viaduct.training.distributed import Group
from viaduct.training.parallel import (
    DataParallel,
    HybridParallel,
    SingleRank,
    build_strategy,
    copy_optimizer_state,
    count_correct,
)


def test_one_rank_needs_no_communication() -> None:
    model = nn.Linear(2, 4)
    strategy = build_strategy(RECIPE, model, Group(), None)
    assert type(strategy) is SingleRank
    assert strategy.wrap_network(model) is model
    assert (strategy.rank_loss_weight, strategy.capture_obstacle) == (1.0, None)


def test_a_rank_with_more_images_has_a_larger_weight() -> None:
    recipe = replace(RECIPE, data=replace(RECIPE.data, global_batch=9))
    strategies = [build_strategy(recipe, nn.Linear(2, 4), Group(rank, 2), None) for rank in range(2)]
    assert all(type(strategy) is DataParallel for strategy in strategies)
    assert sum(strategy.weight_in_mean for strategy in strategies) == 2
    assert strategies[0].weight_in_mean > strategies[1].weight_in_mean
    assert strategies[0].capture_obstacle == "several ranks take part"


def test_a_hybrid_rank_has_its_rows_of_the_classifier_and_reports_full_shapes() -> None:
    model = nn.Sequential(nn.Linear(2, 4))
    strategy = build_strategy(RECIPE, model, Group(1, 2), "0")
    assert isinstance(strategy, HybridParallel)
    assert model[0].weight.shape == (2, 2)
    assert strategy.list_full_shapes(model) == {"0.weight": (4, 2), "0.bias": (4,)}
    assert strategy.count_missing_parameters() == 6


def test_the_optimizers_own_entries_survive_a_copy_that_is_changed() -> None:
    state = {"step": 1, "optimizer": {"param_groups": [], "state": {0: {"momentum_buffer": torch.zeros(2)}}}}
    copied = copy_optimizer_state(state)
    copied["optimizer"]["state"][0]["momentum_buffer"] = None
    assert state["optimizer"]["state"][0]["momentum_buffer"] is not None  # type: ignore[index]


def test_mixed_labels_count_by_the_stronger_one() -> None:
    logits = torch.eye(8)[:2] + torch.arange(8) / 100
    assert int(count_correct(logits, torch.tensor([0, 2]))) == 1
    shares = torch.tensor([[0.7, 0.3] + [0.0] * 6, [0.6, 0.4] + [0.0] * 6])
    assert int(count_correct(logits, shares)) == 1
    assert int(count_correct(logits, torch.tensor([7, 2]), top=5)) == 1
