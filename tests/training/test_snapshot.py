"""State of a run: taken, restored and sent to other ranks."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from training.tiny_runs import (
    RECIPE,
    build_dropout_network,
    build_normed_network,
    build_plain_network,
    build_training,
    build_two_rate_optimizer,
    copy_weights,
    train_recipe,
)
from viaduct.errors import BadRun
from viaduct.recipes import Ema, Sgd
from viaduct.training.distributed import Group
from viaduct.training.random_generators import read_generator_states
from viaduct.training.rundir import RunDir


def test_another_model_or_optimizer_does_not_continue_a_run(run: RunDir) -> None:
    saved = train_recipe(replace(RECIPE, steps=2), run).save()
    with pytest.raises(BadRun, match="is a checkpoint of another model"):
        build_training(replace(RECIPE, model=build_normed_network), run).restore(saved)
    everything = replace(RECIPE, optimizer=Sgd(weight_decay=0.1, decay="all"))
    with pytest.raises(BadRun, match="step-2 does not fit this optimizer"):
        build_training(replace(RECIPE, model=build_plain_network, optimizer=build_two_rate_optimizer), run).restore(
            saved
        )
    build_training(everything, run).restore(saved)


def test_a_restored_snapshot_continues_bit_by_bit(run: RunDir) -> None:
    recipe = replace(RECIPE, model=build_dropout_network, ema=Ema(0.9))
    state = build_training(recipe, run)
    batches = state.begin_training()
    state.advance(batches)
    snapshot = copy.deepcopy(state.run_state.take_snapshot())  # its tensors are the run's own
    random_state = torch.get_rng_state()
    state.advance(batches)
    expected, averages = copy_weights(state), copy.deepcopy(state.ema.averages) if state.ema else {}
    torch.manual_seed(7)
    state.run_state.restore(snapshot, run.path)
    assert state.step == 1
    assert torch.equal(torch.get_rng_state(), random_state)
    again = state.begin_training()
    state.advance(again)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in copy_weights(state).items())
    assert state.ema is not None
    assert state.ema.updates == 2
    assert all(torch.equal(tensor, averages[name]) for name, tensor in state.ema.averages.items())
    assert snapshot.state["position"] == {"seed": recipe.seed, "samples": 8}


def test_a_rank_that_did_not_exist_before_draws_other_numbers_than_those_that_did(run: RunDir) -> None:
    state = build_training(RECIPE, run)
    others = [read_generator_states(state.device) for _ in range(2)]
    stored = {"random": read_generator_states(state.device), "random_of_others": others[:1]}
    before = torch.get_rng_state()
    drawn = []
    for rank in range(3):  # ranks 0 and 1 wrote the checkpoint, rank 2 is new
        state.run_state.parallel.group = Group(rank, 3)
        state.run_state.restore_random_states(stored)
        drawn.append(torch.equal(torch.get_rng_state(), before))
    assert drawn == [True, True, False]
