"""`viaduct evaluate` of a run whose recipe has a metric of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from forked_viaduct import viaduct
from verbs.short_run import check_refusal
from viaduct import models
from viaduct.errors import BadData
from viaduct.recipes import LoadedRecipe, load, replace
from viaduct.verbs import evaluate
from viaduct.verbs._weights import advise_on_mismatch
from viaduct.weights.torch_names import list_torchvision_names

RECIPE_FILE = '''
"""Shapes with a metric of its own."""
from viaduct.recipes import load, replace

def share_of_class_0(logits, labels):
    return (logits.argmax(1) == 0).double().mean()

recipe = replace(load("shapes_taster").recipe, metrics={"zeros": share_of_class_0})
'''


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


def advise(weights: Path, network: nn.Module, names: dict[str, str], model: str) -> str:
    """Return what is said of weights that do not fit a recipe of this network with 10 classes."""
    torch.save({names.get(name, name): value for name, value in network.state_dict().items()}, weights)
    recipe = load("resnet50_cifar10").recipe
    loaded = LoadedRecipe("mine", replace(recipe, model=model, data=replace(recipe.data, classes=10)), "", None)
    with pytest.raises(BadData) as refused, advise_on_mismatch(weights, loaded):
        raise BadData("they do not fit.", "To begin without them: --init-exclude 'head.*'")
    assert "--init-exclude" not in str(refused.value)
    return str(refused.value)


def test_weights_of_the_recipes_network_are_not_advised_another_recipe(tmp_path: Path) -> None:
    network = models.build("mobilenet_v2", 7)
    text = advise(tmp_path / "own.pth", network, {}, "mobilenet_v2")
    assert text.endswith("fit.\n  Give --classes 7, as many as it has.")
    text = advise(tmp_path / "theirs.pth", network, list_torchvision_names(network), "mobilenet_v2")
    assert "torchvision's names; `viaduct weights import" in text
    assert "--model mobilenet_v2 --out theirs_own.safetensors`" in text
    assert "--recipe" not in text


def test_weights_of_another_network_are_advised_a_recipe_of_theirs(tmp_path: Path) -> None:
    text = advise(tmp_path / "own.pth", models.build("resnet56_cifar", 10), {}, "mobilenet_v2")
    assert "--recipe resnet56_cifar10" in text


def test_evaluate_shows_the_latest_or_all(finished: Path) -> None:
    latest = json.loads(viaduct("evaluate", finished, "--json").stdout)
    assert latest["step"] == 2
    assert latest["count"] == sum(map(sum, latest["confusion"])) == 16
    assert [row["step"] for row in json.loads(viaduct("evaluate", finished, "--all", "--json").stdout)] == [1, 2]
    table = viaduct("evaluate", finished, "--all").stdout
    assert "top-1 %" in table
    assert "best" in table
    check_refusal(viaduct("evaluate", finished, "--step", "7"), "no checkpoint of step 7", "1, 2")


def test_only_the_first_of_equal_checkpoints_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"epoch": 1.0, "top5": 1.0, "loss": 0.5, "precision": 0.5, "recall": 0.5, "f1": 0.5, "count": 16}
    saved = {"checkpoint_time": "2026-01-02 03:04:05"}
    evaluate.print_evaluations(
        [{"step": step, "top1": top1, **figures, **saved} for step, top1 in ((1, 0.25), (2, 0.5), (3, 0.5))]
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "best" in line] == ["2"]


def test_evaluate_agrees_with_the_run_itself(finished: Path) -> None:
    latest = json.loads(viaduct("evaluate", finished, "--json").stdout)
    summary = json.loads((finished / "summary.json").read_text())
    for figure in ("loss", "top1", "top5", "f1"):
        assert latest[figure] == pytest.approx(summary["final"][figure], rel=1e-6)
