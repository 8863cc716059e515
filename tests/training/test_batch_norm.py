"""Running averages that have not settled are recognised by measuring, and recomputed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.tiny_runs import RECIPE, build_normed_network, build_plain_network, make_images
from training.unsettled_run import SLOW, run_recipe
from viaduct import devices
from viaduct.training import batch_norm
from viaduct.training.batch_norm import StatisticsCheck, check_running_statistics, looks_unsettled
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.rundir import RunDir


def test_a_run_as_good_in_validation_is_not_suspected() -> None:
    training = {"loss": 0.5, "top1": 0.8}
    assert not looks_unsettled(training, {"loss": 0.9, "top1": 0.75})
    assert looks_unsettled(training, {"loss": 5.8e8, "top1": 0.33})
    assert looks_unsettled(training, {"loss": float("nan"), "top1": 0.8})


def test_a_training_loss_that_is_not_finite_does_not_stop_the_check() -> None:
    """In fp16 all steps of the last log line may overflow; metrics.jsonl then has null."""
    assert looks_unsettled({"loss": None, "top1": 0.8}, {"loss": 0.9, "top1": 0.75})


def test_the_reason_is_reported_with_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(tmp_path / "run")
    run_recipe(run, SLOW)
    output = capsys.readouterr().err
    assert "have not settled: after 30 steps with momentum 0.001 they have gone 3 % of the way." in output
    assert f"viaduct evaluate {run.path} --recompute-batch-norm 100" in output
    summary = json.loads((run.path / "summary.json").read_text())
    found = summary["batch_norm"]
    assert found["unsettled"]
    assert found["images"] == 18
    assert found["recomputed_top1"] > found["top1"] == summary["final"]["top1"]
    assert f"{100 * found['recomputed_top1']:.1f} %" in output
    assert "have not settled" in run.report.read_text()


def test_nothing_is_reported_where_recomputing_does_not_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that is simply bad on the validation images must not be excused."""
    run = RunDir(tmp_path / "run")
    monkeypatch.setattr("viaduct.training.finishing.looks_unsettled", lambda training, validation: True)
    run_recipe(run, replace(RECIPE, model=build_normed_network, epochs=6))
    assert "settled" not in capsys.readouterr().err
    assert json.loads((run.path / "summary.json").read_text())["batch_norm"]["unsettled"] is False


def test_a_network_without_batch_norm_has_nothing_to_recompute(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run_recipe(run, replace(RECIPE, model=build_plain_network))
    device, device_name = devices.pick("cpu")
    saved = SavedCheckpoint(run.checkpoints / "step-10")
    assert (
        check_running_statistics(
            replace(RECIPE, model=build_plain_network), saved, make_images(None), device, device_name
        )
        is None
    )


def test_both_measurements_see_the_same_images_on_a_machine_that_becomes_slow(
    unsettled_run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, measured, measure = [0.0], list[Any](), batch_norm.score_batches

    def slow_down(*args: Any) -> Any:
        measured.append(measure(*args))
        seconds[0] = 1000.0  # a look at the clock
        return measured[-1]

    def read_clock() -> float:
        now[0] += seconds[0]
        return now[0]

    now = [0.0]
    monkeypatch.setattr(batch_norm.time, "monotonic", read_clock)
    monkeypatch.setattr(batch_norm, "score_batches", slow_down)
    images = make_images(None)
    averages = check_running_statistics(
        SLOW, SavedCheckpoint(unsettled_run.checkpoints / "step-30"), images, *devices.pick("cpu")
    )
    assert averages is not None
    assert averages.images == len(images.validation)
    assert [result.images for result in measured] == [averages.images] * 2


def test_norms_of_frozen_layers_keep_their_averages() -> None:
    network = build_normed_network(4)
    assert len(batch_norm.find_recomputable_norms(network)) == 1
    for parameter in network[1].parameters():
        parameter.requires_grad_(False)
    assert batch_norm.find_recomputable_norms(network) == []


def test_only_a_clear_gain_is_called_the_reason() -> None:
    found = StatisticsCheck(
        32, 100, top1=0.5, loss=1.0, recomputed_top1=0.54, recomputed_loss=0.9, steps=9, momentum=0.1
    )
    assert not found.is_unsettled
    assert replace(found, recomputed_top1=0.56).is_unsettled
    assert not replace(found, recomputed_top1=0.56, recomputed_loss=1.1).is_unsettled
