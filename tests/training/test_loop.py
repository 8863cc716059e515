"""The loop: the same numbers however a run is cut up, and nothing beside them."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from shutil import which

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.tiny_runs import (
    PER_EPOCH,
    RECIPE,
    After,
    Recorder,
    build_dropout_network,
    build_normed_network,
    build_plain_network,
    build_training,
    build_two_rate_optimizer,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct.errors import BadValue
from viaduct.recipes import AdamW, Checkpoint, Cosine, Evaluation, Log, Precision, Recipe, Sgd
from viaduct.training.callbacks import Checkpointing, StopAtThreshold
from viaduct.training.checkpoint import SavedCheckpoint, list_checkpoints
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_the_seed_decides_everything(run: RunDir) -> None:
    recipe = replace(RECIPE, model=build_dropout_network)
    once = copy_weights(train_recipe(recipe, run))
    torch.manual_seed(77)
    random.seed(77)
    assert same(copy_weights(train_recipe(recipe, run)), once)
    assert not same(copy_weights(train_recipe(replace(recipe, seed=2), run)), once)


def test_a_run_learns(run: RunDir) -> None:
    recorder = Recorder()
    done = train_recipe(replace(RECIPE, epochs=6), run, recorder)
    assert recorder.logs[-1].loss < 0.5 * recorder.logs[0].loss
    assert done.score is not None
    assert done.score.top1 > 0.9


class Flag:
    """Ctrl-C at a moment of the test's choosing."""

    def __init__(self) -> None:
        self.raised = False

    def __call__(self) -> bool:
        return self.raised

    def now(self, training: Training) -> None:
        self.raised = True


def interrupted_at(step: int, recipe: Recipe, run: RunDir, *others: Recorder) -> SavedCheckpoint:
    """Train until Ctrl-C comes after that step; the checkpoint it leaves."""
    flag = Flag()
    train_recipe(recipe, run, *others, After(step, flag.now), Checkpointing(), read_signal=flag)
    return list_checkpoints(run.checkpoints)[-1]


def resume_training(recipe: Recipe, run: RunDir, saved: SavedCheckpoint, *others: Recorder) -> Training:
    again = build_training(recipe, run, *others, Checkpointing())
    torch.manual_seed(123)  # a new process does not know the old one's random numbers
    np.random.seed(5)
    random.seed(9)
    again.restore(saved)
    with again.train_batches, again.validation:
        assert again.fit() == "finished"
    return again


FP16 = Precision("fp16", loss_scale="dynamic", scale_start=2.0**24, scale_grow_every=4)
RESUMABLE = {
    "without random operators": replace(RECIPE, model=build_plain_network),
    "dropout": replace(RECIPE, model=build_dropout_network),
    "batch norm": replace(RECIPE, model=build_normed_network, schedule=Cosine(warmup_epochs=1)),
    "adamw": replace(RECIPE, model=build_normed_network, optimizer=AdamW(1e-2)),
    "accumulation": replace(RECIPE, model=build_dropout_network, accumulate=2, clip_norm=0.5),
    "bf16": replace(RECIPE, model=build_dropout_network, precision=Precision("bf16")),
    "loss scale": replace(RECIPE, model=build_normed_network, precision=FP16),
    "own optimizer": replace(RECIPE, optimizer=lambda found: torch.optim.RMSprop(found, lr=0.01, momentum=0.5)),
}


@pytest.mark.parametrize("step", [1, PER_EPOCH, PER_EPOCH + 2, 9])
@pytest.mark.parametrize("name", RESUMABLE)
def test_a_resumed_run_is_bitwise_the_run_that_was_never_stopped(run: RunDir, name: str, step: int) -> None:
    recipe, uninterrupted, first, after = RESUMABLE[name], Recorder(), Recorder(), Recorder()
    expected = train_recipe(recipe, run, uninterrupted)
    saved = interrupted_at(step, recipe, run, first)
    assert (saved.step, saved.find_damage()) == (step, None)
    assert first.events[-1] == ("end: interrupted", step)
    again = resume_training(recipe, run, saved, after)
    assert after.events[0] == ("start", step)
    assert same(copy_weights(again), copy_weights(expected))
    assert [log.losses for log in first.logs + after.logs] == [log.losses for log in uninterrupted.logs]
    assert [log.lr for log in first.logs + after.logs] == [log.lr for log in uninterrupted.logs]
    assert again.scale.get_state() == expected.scale.get_state()
    assert again.score is not None
    assert expected.score is not None
    assert again.score.predictions == expected.score.predictions
    states = [
        [tensor for state in run.optimizer.state_dict()["state"].values() for tensor in state.values()]
        for run in (again, expected)
    ]
    assert len(states[0]) == len(states[1])
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(*states, strict=True))


@pytest.mark.parametrize("level", ["O2", "O3"])
@pytest.mark.parametrize("word", ["bf16", "fp16"])
def test_a_cast_network_resumes_bitwise_too(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, level: str, word: str
) -> None:
    recipe = replace(RECIPE, model=build_dropout_network, precision=Precision(level))
    monkeypatch.setattr(build_training(recipe, run).device, "list_native_dtypes", lambda: (word,))
    expected = train_recipe(recipe, run)
    expected.computation.gather_statistics()
    again = resume_training(recipe, run, interrupted_at(7, recipe, run))
    again.computation.gather_statistics()
    assert again.precision_plan.cast_network
    assert same(copy_weights(again), copy_weights(expected))


def test_a_step_of_the_best_is_not_forgotten_by_resuming(run: RunDir) -> None:
    recipe = replace(
        change_part(RECIPE, "optimizer", lr=0.0), epochs=3
    )  # stands still: the first evaluation stays the best
    again = resume_training(recipe, run, interrupted_at(7, recipe, run))
    assert again.progress.best is not None
    assert again.progress.best["step"] == 5


def test_an_interrupted_evaluation_leaves_no_trace_and_is_made_up_for(run: RunDir) -> None:
    class InTheMiddle(Recorder):
        def evaluating(self, training: Training, done: int, total: int) -> None:
            super().evaluating(training, done, total)
            flag.raised = done == 2

    flag, first, after = Flag(), InTheMiddle(), Recorder()
    done = train_recipe(RECIPE, run, first, Checkpointing(), read_signal=flag)
    assert first.at("evaluation") == []
    assert (done.score, done.progress.is_complete, first.events[-1]) == (None, False, ("end: interrupted", 5))
    again = resume_training(RECIPE, run, list_checkpoints(run.checkpoints)[-1], after)
    assert after.at("evaluation") == [5, 10]
    assert same(copy_weights(again), copy_weights(train_recipe(RECIPE, run)))


def test_a_run_interrupted_after_its_last_step_still_owes_its_evaluation(run: RunDir) -> None:
    class AtTheEnd(Recorder):
        def log(self, training: Training, record: object) -> None:
            flag.raised = training.step == 10

    flag, after = Flag(), Recorder()
    done = train_recipe(RECIPE, run, AtTheEnd(), Checkpointing(), read_signal=flag)
    assert (done.step, done.progress.is_complete) == (10, False)
    again = resume_training(RECIPE, run, list_checkpoints(run.checkpoints)[-1], after)
    assert after.at("step") == []
    assert after.at("evaluation") == [10]
    assert again.score is not None


def test_a_run_that_was_killed_after_it_reached_its_threshold_does_not_train_on(run: RunDir) -> None:
    recipe = replace(RECIPE, evaluation=Evaluation(stop_threshold=0.01), checkpoint=Checkpoint(every_steps=1))
    train_recipe(recipe, run, StopAtThreshold(), Checkpointing())
    again = build_training(recipe, run, StopAtThreshold(), Checkpointing())
    again.restore(list_checkpoints(run.checkpoints)[-1])
    with again.train_batches, again.validation:
        assert again.fit() == "finished"
    assert again.step == 5
    assert again.score is not None


def test_a_longer_run_continues_a_shorter_one(run: RunDir) -> None:
    short = train_recipe(replace(RECIPE, steps=4), run, Checkpointing())
    assert short.step == 4
    again = resume_training(RECIPE, run, list_checkpoints(run.checkpoints)[-1])
    assert again.step == 10
    assert same(copy_weights(again), copy_weights(train_recipe(RECIPE, run)))


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulating_in_parts_gives_the_weights_of_one_part(run: RunDir, parts: int) -> None:
    recorders = Recorder(), Recorder()
    uninterrupted = copy_weights(train_recipe(RECIPE, run, recorders[0]))
    made = copy_weights(train_recipe(replace(RECIPE, accumulate=parts), run, recorders[1]))
    for name, tensor in uninterrupted.items():
        torch.testing.assert_close(made[name], tensor, rtol=1e-4, atol=1e-6)
    for first, second in zip(recorders[0].logs, recorders[1].logs, strict=True):
        assert second.loss == pytest.approx(first.loss, rel=1e-4)
        assert (second.step, second.top1) == (first.step, first.top1)


def measure_movement(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float((after[name] - tensor).square().sum()) for name, tensor in before.items()))


def test_clipping_bounds_the_whole_gradient_and_only_if_it_is_longer(run: RunDir) -> None:
    def one_step(clip_norm: float) -> float:
        recipe = replace(RECIPE, optimizer=Sgd(lr=0.5, momentum=0.0), clip_norm=clip_norm, steps=1)
        state = build_training(recipe, run)
        before = copy_weights(state)
        with state.train_batches, state.validation:
            state.fit()
        return measure_movement(before, copy_weights(state))

    free = one_step(0.0)
    assert one_step(1000.0) == pytest.approx(free)
    assert one_step(free / 0.5 / 4) == pytest.approx(free / 4, rel=1e-4)


def test_clipping_sees_the_gradients_without_their_scale(run: RunDir) -> None:
    recipe = replace(RECIPE, optimizer=Sgd(lr=0.5, momentum=0.0), clip_norm=0.01, steps=1)
    scaled = replace(recipe, precision=Precision("fp32", loss_scale=1024.0))
    first, second = copy_weights(train_recipe(recipe, run)), copy_weights(train_recipe(scaled, run))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        (1, 0, [5, 10]),
        (2, 0, [10]),
        (0, 0, [10]),
        (3, 0, [10]),
        (0.4, 0, [2, 4, 6, 8, 10]),
        (0.01, 4, [1, 2, 3, 4]),
        (1, 7, [5, 7]),
        (1.4, 16, [7, 14, 16]),
    ],
)
def test_evaluations_come_by_epochs_and_at_the_end(run: RunDir, every: float, steps: int, expected: list[int]) -> None:
    recorder = Recorder()
    train_recipe(replace(RECIPE, steps=steps, evaluation=Evaluation(every_epochs=every)), run, recorder)
    assert recorder.at("evaluation") == expected


def test_evaluating_only_takes_no_step(run: RunDir) -> None:
    recorder = Recorder()
    state = build_training(
        replace(RECIPE, model=build_normed_network, evaluation=Evaluation(eval_only=True)), run, recorder
    )
    before = copy_weights(state)
    with state.train_batches, state.validation:
        assert state.fit() == "finished"
    assert [event for event, _ in recorder.events] == [
        "start",
        *(f"evaluating {done}/3" for done in (1, 2, 3)),
        "evaluation",
        "end: finished",
    ]
    assert same(copy_weights(state), before)


def test_an_interrupted_evaluation_does_not_count_as_finished(run: RunDir) -> None:
    recorder = Recorder()
    state = build_training(
        replace(RECIPE, evaluation=Evaluation(eval_only=True)), run, recorder, read_signal=lambda: 15
    )
    with state.train_batches, state.validation:
        assert state.fit() == "interrupted"
    assert state.score is None
    assert [event for event, _ in recorder.events] == ["start", "evaluating 1/3", "end: interrupted"]


def test_evaluation_changes_neither_weights_nor_statistics_nor_random_states(run: RunDir) -> None:
    often = replace(RECIPE, model=build_dropout_network, evaluation=Evaluation(every_epochs=0.2))
    never = replace(often, evaluation=Evaluation(every_epochs=0))
    assert same(copy_weights(train_recipe(often, run)), copy_weights(train_recipe(never, run)))


def test_logging_and_saving_change_nothing(run: RunDir) -> None:
    busy = replace(RECIPE, model=build_dropout_network, log=Log(every_steps=1), checkpoint=Checkpoint(every_steps=1))
    quiet = replace(busy, log=Log(every_steps=100), checkpoint=Checkpoint(every_minutes=0))
    assert same(copy_weights(train_recipe(busy, run, Checkpointing())), copy_weights(train_recipe(quiet, run)))


@pytest.mark.parametrize(("length", "steps"), [({"steps": 3}, 3), ({"steps": 12}, 12), ({"epochs": 0.6}, 3)])
def test_a_run_is_as_long_as_its_steps_or_its_epochs(run: RunDir, length: dict[str, int], steps: int) -> None:
    recorder = Recorder()
    done = train_recipe(replace(RECIPE, **length), run, recorder)
    assert (done.step, recorder.at("step")) == (steps, list(range(1, steps + 1)))


def test_a_log_record_is_the_mean_since_the_last_one(run: RunDir) -> None:
    every, some = Recorder(), Recorder()
    train_recipe(RECIPE, run, every)
    train_recipe(replace(RECIPE, log=Log(every_steps=4), evaluation=Evaluation(every_epochs=0)), run, some)
    assert [record.step for record in some.logs] == [4, 8, 10]
    assert [record.first_step for record in some.logs] == [1, 5, 9]
    singly = [record.loss for record in every.logs]
    assert [record.losses for record in some.logs] == [singly[:4], singly[4:8], singly[8:]]
    assert some.logs[0].loss == pytest.approx(sum(singly[:4]) / 4)
    assert some.logs[1].top1 == pytest.approx(sum(record.top1 for record in every.logs[4:8]) / 4)
    assert some.logs[-1].epoch == 2.0
    assert all(record.images_per_s > 0 for record in some.logs)


def test_the_total_loss_holds_the_weight_decay(run: RunDir) -> None:
    recorder = Recorder()
    done = train_recipe(replace(RECIPE, optimizer=Sgd(0.1, weight_decay=0.2, decay="all")), run, recorder)
    squares = sum(float(tensor.square().sum()) for tensor in copy_weights(done).values())
    last = recorder.logs[-1]
    assert last.total_loss - last.loss == pytest.approx(0.1 * squares, rel=1e-4)


def test_the_logged_rate_is_the_one_that_was_used(run: RunDir) -> None:
    recorder, used = Recorder(), []

    class Rates(Recorder):
        def step(self, training: Training) -> None:
            used.append(training.optimizer.param_groups[0]["lr"])

    train_recipe(replace(RECIPE, schedule=Cosine(warmup_epochs=1)), run, recorder, Rates())
    assert [record.lr for record in recorder.logs] == used
    assert used[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])


def test_a_schedule_keeps_the_proportion_of_the_users_rates(run: RunDir) -> None:
    recipe = replace(RECIPE, optimizer=build_two_rate_optimizer, schedule=lambda step, steps: 0.5)
    done = train_recipe(recipe, run)
    assert [group["lr"] for group in done.optimizer.param_groups] == pytest.approx([0.1, 0.01])


def test_a_loss_of_the_user_is_what_is_minimised(run: RunDir) -> None:
    def small_logits(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.square().mean()

    recorder = Recorder()
    train_recipe(replace(RECIPE, loss=small_logits, epochs=6), run, recorder)
    assert recorder.scores[-1].loss < 0.1 * recorder.logs[0].loss


def test_something_that_is_no_network_is_refused(run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"model made a str, not a torch.nn.Module"):
        build_training(replace(RECIPE, model=lambda classes: "resnet"), run)


def test_a_network_gets_the_number_of_classes(run: RunDir) -> None:
    asked: list[int] = []

    def network(classes: int) -> nn.Module:
        asked.append(classes)
        return build_plain_network(classes)

    train_recipe(replace(RECIPE, model=network, steps=1), run)
    assert asked == [4]


def test_a_named_network_is_built_with_the_classes_of_the_data(run: RunDir) -> None:
    state = build_training(replace(RECIPE, model="resnet20_cifar"), run)
    assert state.model.head.out_features == 4


def test_a_checkpoint_says_what_it_is_of(run: RunDir) -> None:
    train_recipe(RECIPE, run, Checkpointing())
    manifest = list_checkpoints(run.checkpoints)[-1].read_manifest()
    assert (manifest["model"], manifest["classes"], manifest["epoch"], manifest["step"]) == (
        "build_plain_network",
        4,
        2.0,
        10,
    )
    assert manifest["evaluation"]["count"] == 18


def test_frozen_weights_stay(run: RunDir) -> None:
    def half_frozen(classes: int) -> nn.Module:
        network = build_plain_network(classes)
        network[0].requires_grad_(False)
        return network

    state = build_training(replace(RECIPE, model=half_frozen), run)
    before = copy_weights(state)
    with state.train_batches, state.validation:
        state.fit()
    assert torch.equal(copy_weights(state)["0.weight"], before["0.weight"])
    assert not torch.equal(copy_weights(state)["4.weight"], before["4.weight"])


@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.lengthy
def test_graph_mode_computes_what_eager_mode_does(run: RunDir) -> None:
    short = replace(RECIPE, model=build_normed_network, steps=3)
    eager, graph = train_recipe(short, run), train_recipe(replace(short, mode="graph"), run)
    assert graph.computation.run is not graph.model
    for name, tensor in copy_weights(eager).items():
        torch.testing.assert_close(copy_weights(graph)[name], tensor, rtol=1e-3, atol=1e-4)
