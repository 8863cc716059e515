"""A classifier that is shared out over ranks computes, learns and is saved like a whole one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from training.hybrid_recipe import CLASSES, FEW, HYBRID, make_split
from training.ranks import run_on_ranks
from training.test_distributed import Overflow, difference, losses, records, run_recipe, train_on_ranks
from training.tiny_runs import RECIPE, change_part
from viaduct.recipes import (
    AdamW,
    Arrays,
    Checkpoint,
    CrossEntropy,
    Ema,
    Evaluation,
    ImageSet,
    Lars,
    Precision,
    Recipe,
    RmsProp,
    Sgd,
    load,
)
from viaduct.training.callbacks import Callback
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.distributed import join_ranks
from viaduct.training.hybrid import MixedLabels, Shards, SplitLoss, count_correct, find_best_classes, mix_labels
from viaduct.training.loop import Training
from viaduct.training.mixup import mix
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training


def assert_same(run: Path, other: Path, weights: float = 1e-5) -> None:
    """The same losses, scores and files, but for the rounding of logits, which are fp32."""
    assert difference(other, run) < 1e-6  # losses are fp32
    for ours, theirs in zip(records(run, "log"), records(other, "log"), strict=True):
        assert ours["top1"] == theirs["top1"]
        assert ours["total_loss"] == pytest.approx(theirs["total_loss"], rel=1e-6)
    scores = [{record["step"]: record for record in records(folder, "evaluation")} for folder in (run, other)]
    assert scores[0].keys() >= scores[1].keys()  # a run that ended in between was evaluated there, too
    for ours, theirs in ((scores[0][step], theirs) for step, theirs in scores[1].items()):
        assert {name: ours[name] for name in ("count", "top1", "top5", "f1")} == {
            name: theirs[name] for name in ("count", "top1", "top5", "f1")
        }
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
    for name in ("model.safetensors", "ema.safetensors"):
        assert (run / name).is_file() == (other / name).is_file()
        if (run / name).is_file():
            same_tensors(load_file(run / name), load_file(other / name), weights)
    last = max((run / "checkpoints").iterdir()).name
    ours, theirs = (SavedCheckpoint(folder / "checkpoints" / last).read_state()["optimizer"] for folder in (run, other))
    assert ours.keys() == theirs.keys()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for index in theirs["state"]:
        tensors = {name: value for name, value in theirs["state"][index].items() if isinstance(value, Tensor)}
        same_tensors({name: ours["state"][index][name] for name in tensors}, tensors, weights)


def same_tensors(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name].shape == theirs[name].shape, name
        assert ours[name].dtype == theirs[name].dtype, name
        apart = (ours[name].double() - theirs[name].double()).abs().max()
        assert apart <= tolerance * theirs[name].double().abs().max(), (name, apart)


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (2, {}),
        (3, {"loss": CrossEntropy(label_smoothing=0.1), "accumulate": 2, "clip_norm": 0.5}),
        (3, {"data": replace(FEW.data, global_batch=20), "steps": 6}),  # 7, 7 and 6 images
        (2, {"mixup": 0.3, "loss": CrossEntropy(label_smoothing=0.1, spread="others"), "accumulate": 3}),
        (2, {"optimizer": Lars(lr=1.0, weight_decay=1e-3), "ema": Ema(0.9)}),
        (3, {"optimizer": Lars(lr=0.5, form="resnext", trust=0.1, weight_decay=1e-3)}),
        (2, {"optimizer": AdamW(lr=0.02, weight_decay=0.01), "clip_norm": 0.1}),
        (2, {"optimizer": RmsProp(lr=0.05, weight_decay=1e-3)}),
        (2, {"precision": Precision("fp32", loss_scale=1024.0)}),
    ],
    ids=["plain", "smooth", "uneven", "mixup", "lars", "resnext lars", "adamw", "rmsprop", "scaled"],
)
def test_a_hybrid_run_is_the_run_of_one_rank(ranks: int, changes: dict[str, Any], tmp_path: Path) -> None:
    recipe = replace(FEW, **changes)
    run_recipe(tmp_path / "alone", recipe)
    ended = train_on_ranks(ranks, tmp_path / "run", recipe)
    assert "Parallel hybrid (head is split over the ranks): the classifier takes" in ended[0].output
    assert_same(tmp_path / "run", tmp_path / "alone")
    summary, alone = RunDir(tmp_path / "run").read_summary(), RunDir(tmp_path / "alone").read_summary()
    assert summary is not None
    assert alone is not None
    assert (summary["parallel"], alone["parallel"]) == ("hybrid", "data")
    assert summary["parameters"] == alone["parameters"]


@pytest.mark.parametrize(("before", "after"), [("hybrid", "data"), ("data", "hybrid"), ("hybrid", "hybrid")])
def test_a_checkpoint_continues_in_any_layout_and_number_of_ranks(before: str, after: str, tmp_path: Path) -> None:
    recipe = replace(FEW, ema=Ema(0.9))
    single, half = tmp_path / "whole", tmp_path / "half"
    run_recipe(single, recipe)
    train_on_ranks(2, half, replace(change_part(recipe, "parallel", mode=before), steps=6))
    for ranks in (1, 3):
        run = shutil.copytree(half, tmp_path / f"run{ranks}")
        ended = train_on_ranks(ranks, run, change_part(recipe, "parallel", mode=after))
        assert "Continuing from" in ended[0].output
        assert_same(run, single)


def conducted_file(run: Path, file: Path, steps: int) -> None:
    loaded = load(str(file))
    loaded = replace(loaded, recipe=replace(loaded.recipe, steps=steps))
    run_training(TrainingRequest(loaded, RunDir(run), None, "cpu", "auto", "viaduct train"))


@pytest.mark.parametrize("schedule", ["restart", "continue"])
def test_a_hybrid_run_begins_with_the_weights_of_another(schedule: str, tmp_path: Path) -> None:
    first, file = tmp_path / "first", tmp_path / "mine.py"
    file.write_text("from training.hybrid_recipe import FEW\nrecipe = FEW\n")
    run_on_ranks(2, conducted_file, first, file, 6)
    recipe = change_part(FEW, "init", source=str(first), schedule=schedule)
    run_recipe(tmp_path / "alone", recipe)
    train_on_ranks(3, tmp_path / "run", recipe)
    assert_same(tmp_path / "run", tmp_path / "alone")


def test_only_the_classifier_learns(tmp_path: Path) -> None:
    recipe = change_part(replace(FEW, steps=6), "init", freeze="all but head")
    run_recipe(tmp_path / "alone", recipe)
    train_on_ranks(2, tmp_path / "run", recipe)
    assert_same(tmp_path / "run", tmp_path / "alone")


def test_the_classifier_of_a_run_of_other_classes_begins_anew(tmp_path: Path) -> None:
    train_on_ranks(2, tmp_path / "donor", replace(FEW, steps=6))
    recipe = replace(
        FEW, data=replace(FEW.data, classes=CLASSES + 1), init=replace(FEW.init, source=str(tmp_path / "donor"))
    )
    run_recipe(tmp_path / "alone", recipe)
    train_on_ranks(2, tmp_path / "run", recipe)
    assert_same(tmp_path / "run", tmp_path / "alone")


@pytest.mark.parametrize("compute", ["bf16", "O2", "O3"])
def test_less_precision_trains_alike(compute: str, tmp_path: Path) -> None:
    recipe = change_part(replace(RECIPE, parallel=replace(HYBRID, sync_norm=False)), "precision", compute=compute)
    recipe = change_part(recipe, "data", global_batch=8)
    run_recipe(tmp_path / "alone", recipe)
    train_on_ranks(2, tmp_path / "run", recipe)
    ours, theirs = losses(tmp_path / "run"), losses(tmp_path / "alone")
    assert max(abs(first - second) / second for first, second in zip(ours, theirs, strict=True)) < 0.05


def test_ranks_agree_on_overflow_in_one_ranks_rows(tmp_path: Path) -> None:
    recipe = change_part(RECIPE, "precision", loss_scale="dynamic", scale_start=4.0)
    ended = run_on_ranks(2, skipped_steps, tmp_path, replace(recipe, parallel=HYBRID, callbacks=(BadRows(),)))
    assert [result.error for result in ended] == [None, None], ended[0].output + ended[1].output
    assert [result.value for result in ended] == [(1, 2.0)] * 2


class BadRows(Overflow):
    """After two steps a gradient of rank 1's own rows becomes infinite, and no other."""

    def step(self, training: Any) -> None:
        if training.group.rank == 1 and training.step == 2:
            training.parallel.split_parameters[0].register_hook(self.spoil)

    def spoil(self, gradient: Tensor) -> Tensor | None:
        self.times = getattr(self, "times", 0) + 1
        return gradient * torch.inf if self.times == 1 else None


def skipped_steps(run: Path, recipe: Recipe) -> tuple[int, float]:
    from training.test_distributed import scales_and_weights

    skipped, scale, _ = scales_and_weights(run, recipe)
    return skipped, scale


MANY = 100_000


def many(path: Path | None) -> ImageSet:
    return ImageSet(make_split(160, 1, MANY), make_split(20, 2, MANY), ())


def wide(classes: int) -> nn.Module:
    """A small backbone before very many classes."""
    layers = nn.Conv2d(3, 16, 3, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, classes))


class Weigh(Callback):
    """Every rank writes down how many bytes of the classifier it has: weight, gradient and momentum."""

    every_rank = True

    def start(self, training: Training) -> None:
        self.classifier(training).register_post_accumulate_grad_hook(self.note)

    def classifier(self, training: Training) -> nn.Parameter:
        return training.model.get_parameter("5.weight")

    def note(self, weight: Tensor) -> None:
        assert weight.grad is not None
        self.gradient = weight.grad.nbytes

    def step(self, training: Training) -> None:
        weight = self.classifier(training)
        momentum = training.optimizer.state[weight]["momentum_buffer"].nbytes
        path = training.run.path.with_suffix(f".bytes{training.group.rank}")
        path.write_text(str(weight.nbytes + self.gradient + momentum))


def test_100_000_classes_have_the_losses_of_one_rank_in_half_the_memory(tmp_path: Path) -> None:
    recipe = replace(
        FEW,
        model=wide,
        data=Arrays(global_batch=16, size=8, classes=MANY, make=many),
        optimizer=Sgd(lr=0.5, momentum=0.9, weight_decay=1e-4),
        steps=20,
        parallel=replace(HYBRID, mode="auto"),
        evaluation=Evaluation(every_epochs=0),
        checkpoint=Checkpoint(every_minutes=0, keep_best=False),
        callbacks=(Weigh(),),
    )
    run, alone = tmp_path / "run", tmp_path / "alone"
    run_recipe(alone, recipe)
    ended = train_on_ranks(2, run, change_part(recipe, "parallel", mode="hybrid"))
    ours, theirs = losses(run), losses(alone)
    assert len(ours) == 20
    assert theirs[-1] < theirs[0] - 1, "it learns"
    assert difference(alone, run) < 1e-4
    (score,), (other,) = records(run, "evaluation"), records(alone, "evaluation")
    assert score["loss"] == pytest.approx(other["loss"], rel=1e-4)
    (single,), halves = (
        [int(path.read_text()) for path in sorted(tmp_path.glob(f"{name}.bytes*"))] for name in ("alone", "run")
    )
    assert single == 3 * 4 * 16 * MANY
    assert halves == [single // 2] * 2
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (run, alone))
    same_tensors(ours, theirs, 1e-3)
    assert "Not drawn: 100,000 classes" in (run / "report.html").read_text()
    assert "of each rank with data" in ended[0].output


# The parts


def logits_and_labels() -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(10, CLASSES, generator=rng, dtype=torch.float64)
    logits[4] = logits[4].round()  # with ties
    return logits, torch.randint(CLASSES, (10,), generator=rng), torch.rand(10, generator=rng).double()


def of_a_rank(smoothing: float, mixed: bool) -> dict[str, Any]:
    with join_ranks("cpu", 30) as group:
        counts = (4, 3, 3)
        shards = Shards(CLASSES, group.rank, group.ranks, counts)
        logits, labels, weights = logits_and_labels()
        mine = shards.find_own_images(counts)
        own = logits[:, shards.own_classes].clone().requires_grad_()
        pairs = mix_labels(labels, weights)
        given: Any = MixedLabels(pairs.labels[mine], pairs.weights[mine]) if mixed else labels[mine]
        loss = SplitLoss(shards, smoothing)(own, given)
        (3 * loss).backward()
        return {
            "loss": float(loss.detach()),
            "gradient": own.grad,
            "right": int(count_correct(own.detach(), given, shards)),
            "best": find_best_classes(own.detach(), shards),
        }


@pytest.mark.parametrize(("smoothing", "mixed"), [(0.0, False), (0.1, False), (0.2, True)])
def test_loss_gradient_and_predictions_are_those_of_all_classes(smoothing: float, mixed: bool) -> None:
    logits, labels, weights = logits_and_labels()
    truth = mix(torch.zeros(10, 3, 2, 2).double(), labels, weights, CLASSES)[1] if mixed else labels
    logits.requires_grad_()
    loss = F.cross_entropy(logits, truth, label_smoothing=smoothing)
    (3 * loss).backward()
    ranks = [ended.value for ended in run_on_ranks(3, of_a_rank, smoothing, mixed)]
    assert [rank["loss"] for rank in ranks] == [pytest.approx(float(loss.detach()), rel=1e-12)] * 3
    assert logits.grad is not None
    assert torch.allclose(torch.cat([rank["gradient"] for rank in ranks], 1), logits.grad, rtol=1e-10, atol=1e-14)
    stronger = truth.argmax(1) if mixed else labels
    assert sum(rank["right"] for rank in ranks) == int((logits.argmax(1) == stronger).sum())
    values = logits.detach().gather(1, ranks[0]["best"])
    assert torch.equal(values, logits.detach().topk(5).values)


def test_shards_are_all_classes_once() -> None:
    for classes, ranks in ((23, 3), (4, 4), (100_000, 7)):
        shards = [Shards(classes, rank, ranks, (1,) * ranks) for rank in range(ranks)]
        assert [shard.own_classes.start for shard in shards[1:]] == [shard.own_classes.stop for shard in shards[:-1]]
        assert (shards[0].own_classes.start, shards[-1].own_classes.stop) == (0, classes)
        assert max(shard.own_class_count for shard in shards) - min(shard.own_class_count for shard in shards) <= 1


# Which layout
