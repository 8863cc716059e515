"""Metrics of a recipe's own: `metrics={"kappa": fn}`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from command import viaduct
from training.tiny import RECIPE, VALIDATION, trained
from viaduct.errors import BadValue
from viaduct.training.callbacks import MetricsFile, TensorBoard
from viaduct.training.rundir import RunDir

RECIPE_FILE = '''
"""Shapes with a metric of its own."""
from viaduct.recipes import load, replace

def share_of_class_0(logits, labels):
    return (logits.argmax(1) == 0).double().mean()

recipe = replace(load("shapes_taster").recipe, metrics={"zeros": share_of_class_0})
'''


def kappa(logits: Tensor, labels: Tensor) -> float:
    """Cohen's, of the predicted classes."""
    predicted = logits.argmax(1)
    agreed = float((predicted == labels).double().mean())
    classes = logits.shape[1]
    shares = [torch.bincount(found, minlength=classes).double() / len(labels) for found in (predicted, labels)]
    chance = float((shares[0] * shares[1]).sum())
    return (agreed - chance) / (1 - chance)


def test_a_metric_sees_the_logits_and_labels_of_all_images_in_their_order(run: RunDir) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def note(logits: Tensor, labels: Tensor) -> int:
        seen.append((logits, labels))
        return 3

    done = trained(replace(RECIPE, metrics={"noted": note, "kappa": kappa}), run)
    assert done.score is not None
    logits, labels = seen[-1]
    assert labels.tolist() == done.images.validation.labels.tolist()
    assert len(logits) == VALIDATION
    assert logits.argmax(1).tolist() == done.score.predictions
    assert done.score.own == {"noted": 3.0, "kappa": pytest.approx(kappa(logits, labels))}
    assert done.score.headline()["noted"] == 3.0


def test_it_is_written_down_beside_the_others(run: RunDir) -> None:
    trained(replace(RECIPE, metrics={"kappa": kappa}), run, MetricsFile(), TensorBoard())
    assert all(-1 <= record["kappa"] <= 1 for record in run.records("evaluation"))
    events = b"".join(path.read_bytes() for path in run.path.glob("events.*"))
    assert b"validation/kappa" in events


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda logits, labels: logits, "metric 'mine' returned a Tensor"),
        (lambda logits, labels: "good", "metric 'mine' returned a str .'good'., not a number"),
        (lambda logits, labels: 1 / 0, "metric 'mine' fails: ZeroDivisionError"),
    ],
)
def test_a_metric_that_gives_no_number_is_named(run: RunDir, metric: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        trained(replace(RECIPE, metrics={"mine": metric}), run)


@pytest.mark.parametrize("metrics", [{"top1": kappa}, {"two words": kappa}, {"kappa": 3}])
def test_names_that_are_taken_and_what_is_no_function_are_refused(metrics: Any) -> None:
    with pytest.raises(BadValue, match="metrics"):
        replace(RECIPE, metrics=metrics)


def test_a_run_shows_it_in_its_logs_its_page_and_in_evaluate(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE_FILE)
    words = ("--steps", "2", "--device", "cpu", "--run", tmp_path / "run", "--ranks", "2")
    answer = viaduct("train", tmp_path / "mine.py", *words)
    assert answer.returncode == 0, answer.stderr
    record = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-2]
    shown = next(line for line in answer.stdout.splitlines() if line.startswith("zeros: "))
    scored = viaduct("evaluate", tmp_path / "run", "--json")
    assert scored.returncode == 0, scored.stderr
    value = json.loads(scored.stdout)
    value = value[0] if isinstance(value, list) else value
    assert f"zeros: {value['zeros']:g}" == shown, record
    assert "zeros" in viaduct("evaluate", tmp_path / "run").stdout
    assert "zeros" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("returned", ["float('nan')", "'good'", "1 / 0"])
def test_whatever_a_metric_returns_the_training_is_kept(tmp_path: Path, returned: str) -> None:
    text = RECIPE_FILE.replace("(logits.argmax(1) == 0).double().mean()", returned)
    (tmp_path / "mine.py").write_text(text)
    words = ("train", tmp_path / "mine.py", "--device", "cpu", "--run", tmp_path / "run")
    answer = viaduct(*words, "--steps", "2", "--batch", "8")
    assert "Traceback" not in answer.stderr
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-2" / "manifest.json").read_text())
    if "nan" in returned:
        assert answer.returncode == 0, answer.stderr
        assert manifest["evaluation"]["zeros"] is None
        assert viaduct("evaluate", tmp_path / "run").returncode == 0
        return
    assert answer.returncode == 2
    assert "the recipe's metric 'zeros'" in answer.stderr
    assert "viaduct train --run" in answer.stderr  # after the metric is mended
