"""Order of the callbacks' calls, and the training loop's own callbacks."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.tiny_runs import RECIPE, After, Recorder, build_training, change_part, train_recipe
from viaduct.errors import Diverged
from viaduct.recipes import Checkpoint, Evaluation, Log, Precision
from viaduct.training.callbacks import (
    Callback,
    Checkpointing,
    MetricsFile,
    NanStop,
    ProgressBar,
    StopAtThreshold,
)
from viaduct.training.checkpoint import find_newest_intact, list_checkpoints
from viaduct.training.logs import FORMATS
from viaduct.training.loop import Training
from viaduct.training.observing import TensorBoard
from viaduct.training.rundir import RunDir


def steps_saved(run: RunDir) -> list[int]:
    return [saved.step for saved in list_checkpoints(run.checkpoints)]


def fill(value: float) -> Callable[[Training], None]:
    @torch.no_grad()
    def spoil(training: Training) -> None:
        for parameter in training.train_step.parameters:
            parameter.fill_(value)

    return spoil


def test_a_callback_that_defines_nothing_changes_nothing(run: RunDir) -> None:
    alone, watched = train_recipe(RECIPE, run), train_recipe(RECIPE, run, Callback())
    assert torch.equal(alone.model[0].weight, watched.model[0].weight)


def test_events_come_in_the_order_that_is_documented(run: RunDir) -> None:
    recorder = Recorder()
    recipe = replace(RECIPE, epochs=1, log=Log(every_steps=2), checkpoint=Checkpoint(every_steps=3, every_minutes=0))
    train_recipe(recipe, run, recorder, Checkpointing())
    assert recorder.events == [
        ("start", 0),
        ("step", 1),
        ("log", 2),
        ("step", 2),
        ("step", 3),
        ("log", 3),  # before a checkpoint, so that a bad loss is never saved
        ("checkpoint", 3),
        ("log", 4),
        ("step", 4),
        ("log", 5),  # before an evaluation
        ("evaluating 1/3", 5),
        ("evaluating 2/3", 5),
        ("evaluating 3/3", 5),
        ("evaluation", 5),
        ("step", 5),
        ("checkpoint", 5),
        ("end: finished", 5),
    ]


def test_a_requested_stop_ends_the_run_as_if_that_step_were_its_last(run: RunDir) -> None:
    recorder = Recorder()
    stop = After(3, lambda training: training.request_stop("enough"))
    done = train_recipe(RECIPE, run, recorder, stop, Checkpointing())
    assert recorder.at("step") == [1, 2, 3]
    assert recorder.at("evaluation") == [3]
    assert recorder.at("end: finished") == [3]
    assert (done.progress.stop_reason, done.progress.is_complete, steps_saved(run)) == ("enough", True, [3])


def test_a_threshold_that_is_not_reached_stops_nothing(run: RunDir) -> None:
    standing = replace(change_part(RECIPE, "optimizer", lr=0.0), evaluation=Evaluation(stop_threshold=0.99))
    done = train_recipe(standing, run, StopAtThreshold())
    assert (done.step, done.progress.stop_reason) == (10, None)


def test_a_threshold_of_zero_stops_nothing(run: RunDir) -> None:
    assert train_recipe(RECIPE, run, StopAtThreshold()).step == 10


def test_a_threshold_that_is_reached_ends_the_run(run: RunDir) -> None:
    recorder = Recorder()
    done = train_recipe(replace(RECIPE, evaluation=Evaluation(stop_threshold=0.01)), run, recorder, StopAtThreshold())
    assert done.step == 5
    assert done.progress.stop_reason is not None
    assert done.progress.stop_reason.endswith("reached the stop threshold of 1 %")
    assert recorder.events[-1] == ("end: finished", 5)


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_is_saved_after_a_loss_that_is_no_number(run: RunDir, every: int, value: float) -> None:
    recipe = replace(
        RECIPE,
        log=Log(every_steps=every),
        checkpoint=Checkpoint(every_steps=2, every_minutes=0),
        schedule=lambda step, steps: 1 / (step + 1),
    )
    recorder = Recorder()
    with pytest.raises(Diverged) as caught:
        train_recipe(recipe, run, NanStop(), recorder, After(3, fill(value)), Checkpointing())
    assert str(caught.value).splitlines()[0] == "the loss became nan at step 4, with learning rate 0.025."
    assert f"The newest intact checkpoint is {run.checkpoints / 'step-2'}." in str(caught.value)
    assert steps_saved(run) == [2]
    assert all(math.isfinite(record.loss) for record in recorder.logs)
    assert find_newest_intact(run.checkpoints)[0] is not None


def test_a_run_that_diverges_before_its_first_checkpoint_says_so(run: RunDir) -> None:
    with pytest.raises(Diverged, match=r"at step 2(.|\n)*There is no intact checkpoint."):
        train_recipe(RECIPE, run, NanStop(), After(1, fill(math.nan)), Checkpointing())
    assert steps_saved(run) == []


def test_a_damaged_checkpoint_is_not_called_the_last_good_one(run: RunDir) -> None:
    def damage(training: Training) -> None:
        fill(math.nan)(training)
        (run.checkpoints / "step-3" / "state.pt").unlink()

    recipe = replace(RECIPE, checkpoint=Checkpoint(every_steps=1, every_minutes=0))
    with pytest.raises(Diverged, match=r"The newest intact checkpoint is .*step-2\."):
        train_recipe(recipe, run, NanStop(), Checkpointing(), After(3, damage))


def test_the_step_is_named_although_it_was_logged_later(run: RunDir) -> None:
    with pytest.raises(Diverged, match="at step 4,"):
        train_recipe(replace(RECIPE, log=Log(every_steps=10)), run, NanStop(), After(3, fill(math.nan)))


def bad_at(*calls: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss that is infinite, with gradients that are no numbers, in these training steps."""
    made = iter(range(1, 1000))

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        value = F.cross_entropy(logits, labels)
        return value * math.inf if torch.is_grad_enabled() and next(made) in calls else value

    return loss


FP16 = Precision("fp16", loss_scale="dynamic", scale_start=2.0**10)


def test_an_overflow_is_not_the_end_while_the_scale_can_fall(run: RunDir) -> None:
    recorder = Recorder()
    recipe = replace(RECIPE, loss=bad_at(3, 7), precision=FP16)
    done = train_recipe(recipe, run, NanStop(), recorder, Checkpointing())
    assert (done.step, done.scale.skipped, done.scale.value) == (10, 2, 2.0**8)
    assert math.isnan(recorder.logs[2].loss)
    assert all(torch.isfinite(tensor).all() for tensor in done.model.state_dict().values())


def test_a_window_with_an_overflow_shows_the_mean_of_the_others(run: RunDir) -> None:
    recorder = Recorder()
    recipe = replace(RECIPE, loss=bad_at(3), precision=FP16, log=Log(every_steps=5))
    train_recipe(recipe, run, NanStop(), recorder)
    losses = recorder.logs[0].losses
    assert math.isinf(losses[2])
    assert recorder.logs[0].loss == pytest.approx(sum(losses[:2] + losses[3:]) / 4)


def test_overflows_without_end_are_the_end(run: RunDir) -> None:
    recipe = replace(RECIPE, loss=bad_at(*range(3, 40)), precision=replace(FP16, scale_start=4.0))
    with pytest.raises(Diverged, match=r"became inf at step 4,"):  # 4 -> 2 -> 1: nothing is left to take away
        train_recipe(recipe, run, NanStop())


def test_no_checkpoint_is_made_that_nobody_requested(run: RunDir) -> None:
    recipe = replace(RECIPE, checkpoint=Checkpoint(every_minutes=10, keep_best=False))
    recorder = Recorder()
    train_recipe(recipe, run, recorder, Checkpointing())
    assert recorder.at("checkpoint") == [10]


def test_checkpoints_come_by_the_clock(run: RunDir) -> None:
    saver, recorder = Checkpointing(), Recorder()

    def let_time_pass(training: Training) -> None:
        saver.saved_at -= 601

    recipe = replace(RECIPE, checkpoint=Checkpoint(every_minutes=10, keep_best=False))
    train_recipe(recipe, run, recorder, After(3, let_time_pass), saver)
    assert recorder.at("checkpoint") == [3, 10]


def test_only_the_last_few_checkpoints_stay(run: RunDir) -> None:
    recipe = replace(RECIPE, checkpoint=Checkpoint(every_steps=1, every_minutes=0, keep=3, keep_best=False))
    train_recipe(recipe, run, Checkpointing())
    assert steps_saved(run) == [8, 9, 10]


@pytest.mark.parametrize(("keep_best", "left"), [(True, [5, 19, 20]), (False, [19, 20])])
def test_the_best_checkpoint_stays(run: RunDir, keep_best: bool, left: list[int]) -> None:
    rules = Checkpoint(every_steps=1, every_minutes=0, keep=2, keep_best=keep_best)
    recipe = replace(change_part(RECIPE, "optimizer", lr=0.5), epochs=4, checkpoint=rules)
    recipe = replace(recipe, schedule=lambda step, steps: float(step < 5))  # learns in the first epoch only
    recorder = Recorder()
    done = train_recipe(recipe, run, recorder, After(6, fill(0.0)), Checkpointing())
    assert recorder.scores[0].top1 > recorder.scores[-1].top1
    assert steps_saved(run) == left
    if keep_best:
        assert done.progress.best == {"step": 5, "top1": recorder.scores[0].top1}
        assert list_checkpoints(run.checkpoints)[0].read_manifest()["evaluation"]["top1"] == recorder.scores[0].top1


def test_a_new_best_replaces_the_old_one(run: RunDir) -> None:
    recipe = replace(RECIPE, evaluation=Evaluation(every_epochs=0.2), checkpoint=Checkpoint(every_minutes=0, keep=1))
    recorder = Recorder()
    done = train_recipe(recipe, run, recorder, Checkpointing())
    tops = [score.top1 for score in recorder.scores]
    assert tops[0] < max(tops)
    best = tops.index(max(tops)) + 1
    assert done.progress.best == {"step": best, "top1": max(tops)}
    assert steps_saved(run) == sorted({best, 10})


def test_a_damaged_checkpoint_of_the_same_step_does_not_count_as_saved(run: RunDir) -> None:
    rules = Checkpoint(every_steps=5, every_minutes=0, keep_best=False)
    train_recipe(replace(RECIPE, checkpoint=rules), run, Checkpointing())
    (run.checkpoints / "step-10" / "state.pt").write_bytes(b"damaged")
    stop = After(3, lambda training: training.request_stop("enough"))
    train_recipe(replace(RECIPE, checkpoint=Checkpoint(every_minutes=0)), run, stop, Checkpointing())
    assert find_newest_intact(run.checkpoints)[0] == list_checkpoints(run.checkpoints)[1]
    assert steps_saved(run) == [3, 5, 10]


def strictly(line: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    read: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return read


def test_every_line_of_the_metrics_is_json_even_where_the_loss_is_none(run: RunDir) -> None:
    recipe = replace(RECIPE, loss=bad_at(2), precision=FP16)
    train_recipe(recipe, run, NanStop(), MetricsFile(), Checkpointing())
    lines = [strictly(line) for line in run.metrics.read_text().splitlines()]
    logs = [line for line in lines if line["kind"] == "log"]
    assert [line["step"] for line in logs] == list(range(1, 11))
    assert (logs[1]["loss"], logs[1]["losses"], logs[1]["skipped"]) == (None, [None], 1)
    assert [line["step"] for line in lines if line["kind"] == "evaluation"] == [5, 10]
    assert {line["kind"] for line in lines} == {"log", "evaluation", "checkpoint"}


def test_tensorboard_gets_training_and_validation(run: RunDir) -> None:
    train_recipe(RECIPE, run, TensorBoard())
    [path] = run.path.glob("events.out.tfevents.*")
    assert not (run.path / "images").exists()
    assert not (run.path / "histograms.jsonl").exists()
    data = path.read_bytes()
    for tag in (b"train/loss", b"train/lr", b"train/images_per_s", b"validation/top1", b"validation/f1"):
        assert tag in data


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_not_drawn_into_a_pipe(run: RunDir) -> None:
    pipe = io.StringIO()
    train_recipe(RECIPE, run, ProgressBar(pipe))
    assert pipe.getvalue() == ""


def test_a_bar_is_drawn_on_a_terminal(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    train_recipe(RECIPE, run, ProgressBar(terminal))
    for text in ("10/10", "images/s", "loss 0.", "epoch 2.0"):
        assert text in terminal.getvalue()


def test_a_bar_can_be_closed_before_it_was_drawn_and_twice(run: RunDir) -> None:
    bar = ProgressBar(Terminal())
    bar.close()
    bar.start(build_training(RECIPE, run))
    bar.close()
    bar.close()


@pytest.mark.parametrize("name", FORMATS)
def test_an_interrupt_between_log_lines_loses_neither_lines_nor_checkpoint(run: RunDir, name: str) -> None:
    recorder, raised = Recorder(), []
    recipe = replace(RECIPE, log=Log(every_steps=100))
    watchers = NanStop(), MetricsFile(), TensorBoard(), FORMATS[name](), recorder, After(3, raised.append)
    train_recipe(recipe, run, *watchers, Checkpointing(), read_signal=lambda: bool(raised))
    assert recorder.events[-3:] == [("log", 3), ("checkpoint", 3), ("end: interrupted", 3)]
    assert [record["step"] for record in run.read_records("log")] == [3]
    assert steps_saved(run) == [3]


def test_the_former_name_of_needs_every_step_still_works_with_a_notice() -> None:
    with pytest.warns(FutureWarning, match=r"Old\.closely is now called needs_every_step"):

        class Old(Callback):
            closely = True

    assert Old().needs_every_step
