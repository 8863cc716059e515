"""Several ranks are one run: the same samples, losses, scores and files as one rank alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from training.ranks import RankResult, free_port, run_on_ranks
from training.tiny_runs import RECIPE, change_part
from viaduct.data.order import draw_permutation
from viaduct.errors import BadValue, ViaductError
from viaduct.models.resnet_cifar import small_resnet
from viaduct.recipes import (
    Checkpoint,
    Constant,
    Cosine,
    Evaluation,
    LoadedRecipe,
    Log,
    Parallel,
    Precision,
    Recipe,
    Sgd,
    Shapes,
)
from viaduct.training import distributed
from viaduct.training.callbacks import Callback
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.distributed import ALONE, Agreement, Group, join_ranks, read_group
from viaduct.training.loop import Training
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import Outcome, run_training


class Witness(Callback):
    """Every rank writes down which images it trains on."""

    every_rank = True

    def start(self, training: Training) -> None:
        path, optimize = training.run.path.with_suffix(f".seen{training.group.rank}"), training.train_step.optimize

        def record_batch(batch: Any) -> None:
            with path.open("a") as file:
                file.write(json.dumps([training.step, batch.index.tolist()]) + "\n")
            optimize(batch)

        setattr(training.train_step, "optimize", record_batch)  # noqa: B010


def tiny_resnet(classes: int) -> nn.Module:
    return small_resnet(classes, blocks=(1, 1), filters=(16, 32))


class InDouble(nn.Module):
    """The same in fp64, where what ranks do otherwise is not blurred by rounding.

    In fp32 any change of the last bit grows a thousandfold in ten steps at this rate, on one rank as on several.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner = tiny_resnet(classes).double()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x.double())
        return logits


RESNET = Recipe(
    model=tiny_resnet,
    data=Shapes(global_batch=64, size=16, train_images=640, validation_images=70, pad=2, flip=True),
    optimizer=Sgd(lr=0.001, weight_decay=1e-4),
    schedule=Cosine(warmup_epochs=1),
    precision=Precision("fp32"),
    steps=50,
    parallel=Parallel(sync_norm=True, hang_seconds=60),
    evaluation=Evaluation(every_epochs=2.5),
    checkpoint=Checkpoint(every_minutes=0),
    log=Log(every_steps=10),
    callbacks=(Witness(),),
)
EXACT = replace(RESNET, model=InDouble, optimizer=Sgd(lr=0.02, weight_decay=1e-4), steps=12)
TINY = replace(RECIPE, log=Log(every_steps=5), checkpoint=Checkpoint(every_steps=2, every_minutes=0, keep_best=False))


def run_recipe(run: Path, recipe: Recipe, resume: str = "auto") -> Outcome:
    command = "viaduct train recipe"
    return run_training(
        TrainingRequest(LoadedRecipe("recipe", recipe, "A recipe.", None), RunDir(run), None, "cpu", resume, command)
    )


def train_on_ranks(ranks: int, run: Path, recipe: Recipe) -> list[RankResult]:
    """A run that came to its end on all ranks."""
    ended = run_on_ranks(ranks, run_recipe, run, recipe)
    for rank, result in enumerate(ended):
        assert result.error is None, f"rank {rank}: {result.error}\n{result.output}"
        assert result.exit_code == 0
    return ended


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    return RunDir(run).read_records(kind)


def losses(run: Path) -> list[float]:
    return [loss for record in records(run, "log") for loss in record["losses"]]


def difference(run: Path, other: Path) -> float:
    """The largest relative difference of two runs' losses."""
    ours, theirs = losses(run), losses(other)
    assert len(ours) == len(theirs)
    return max(abs(first - second) / abs(first) for first, second in zip(ours, theirs, strict=True))


def samples(run: Path) -> dict[int, list[int]]:
    """Step -> the images that all ranks together trained on."""
    seen: dict[int, list[int]] = {}
    for path in run.parent.glob(f"{run.name}.seen*"):
        for line in path.read_text().splitlines():
            step, images = json.loads(line)
            seen.setdefault(step, []).extend(images)
    return {step: sorted(images) for step, images in seen.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny ResNet, trained by one process without torchrun's variables."""
    run = tmp_path_factory.mktemp("alone") / "run"
    run_recipe(run, RESNET)
    return run


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("exact") / "run"
    run_recipe(run, EXACT)
    return run


@pytest.mark.parametrize("ranks", [2, 4])
def test_fifty_losses_samples_and_scores_are_those_of_one_rank(ranks: int, alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = train_on_ranks(ranks, run, RESNET)
    assert len(losses(run)) == 50
    assert difference(alone, run) < 1e-4
    assert samples(run) == samples(alone)
    assert sorted(image for step in range(10) for image in samples(run)[step]) == list(range(640))
    for ours, theirs in zip(records(run, "evaluation"), records(alone, "evaluation"), strict=True):
        assert ours["count"] == theirs["count"] == 70
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert [process.output for process in ended[1:]] == [""] * (ranks - 1), "only rank 0 speaks"
    assert f"on {ranks} ranks of" in ended[0].output
    summary = RunDir(run).read_summary()
    assert summary is not None
    assert summary["ranks"] == ranks


class WithoutKinks(TorchFunctionMode):
    """SiLU wherever a network asks for ReLU."""

    def __torch_function__(self, function: Any, types: Any, inputs: Any = (), keywords: Any = None) -> Any:
        return (
            nn.functional.silu(inputs[0]) if function is nn.functional.relu else function(*inputs, **(keywords or {}))
        )


class Smooth(nn.Module):
    """The same without kinks: there rounding does not grow, and a usual rate can be compared in fp32.

    At the kink of a ReLU the last bit of an activation decides whether it has a gradient.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner = tiny_resnet(classes)

    def forward(self, x: Tensor) -> Tensor:
        with WithoutKinks():
            logits: Tensor = self.inner(x)
        return logits


LEARNING = replace(RESNET, model=Smooth, optimizer=Sgd(lr=0.1, weight_decay=1e-4))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("learned") / "run"
    run_recipe(run, LEARNING)
    return run


@pytest.mark.parametrize("ranks", [2, 4])
def test_fifty_losses_at_a_usual_rate_are_those_of_one_rank(ranks: int, learned: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_on_ranks(ranks, run, LEARNING)
    assert len(losses(run)) == 50
    assert sum(losses(learned)[-5:]) / 5 < 0.8 * losses(learned)[0], "it learns"
    assert difference(learned, run) < 1e-4
    assert samples(run) == samples(learned)


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (2, {}),
        (3, {}),  # 22, 21 and 21 images
        (4, {"accumulate": 2, "clip_norm": 1.0}),
        (2, {"accumulate": 2, "mixup": 0.2}),
    ],
)
def test_in_fp64_ranks_do_exactly_the_same(ranks: int, changes: dict[str, Any], exact: Path, tmp_path: Path) -> None:
    recipe = replace(EXACT, **changes)
    if changes:
        exact = tmp_path / "alone"
        run_recipe(exact, recipe)
    run = tmp_path / "run"
    train_on_ranks(ranks, run, recipe)
    assert difference(exact, run) < 3e-7  # losses are fp32
    ours, theirs = load_file(run / "model.safetensors"), load_file(exact / "model.safetensors")
    assert list(ours) == list(theirs)
    for name in ours:
        assert torch.allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-8), name


def test_summed_gradients_are_the_mean_times_the_ranks(tmp_path: Path) -> None:
    plain = Sgd(lr=0.02, momentum=0.0, weight_decay=0.0)
    mean = replace(EXACT, optimizer=replace(plain, lr=0.04), steps=4)
    summed = replace(EXACT, optimizer=plain, steps=4, parallel=replace(EXACT.parallel, reduce="sum"))
    train_on_ranks(2, tmp_path / "mean", mean)
    train_on_ranks(2, tmp_path / "sum", summed)
    assert difference(tmp_path / "mean", tmp_path / "sum") < 3e-7
    run_recipe(tmp_path / "alone", replace(summed, optimizer=replace(plain, lr=0.04)))
    assert difference(tmp_path / "alone", tmp_path / "sum") < 3e-7  # of one rank there is nothing to add


def test_a_checkpoint_of_two_ranks_continues_on_one_and_on_four(tmp_path: Path) -> None:
    recipe = replace(EXACT, schedule=Constant())
    single, half = tmp_path / "whole", tmp_path / "half"
    run_recipe(single, recipe)
    train_on_ranks(2, half, replace(recipe, steps=7))
    for ranks in (1, 4):
        run = shutil.copytree(half, tmp_path / str(ranks))
        train_on_ranks(ranks, run, recipe)
        assert difference(single, run) < 3e-7
        ours, theirs = load_file(run / "model.safetensors"), load_file(single / "model.safetensors")
        assert all(torch.allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-8) for name in theirs)


@pytest.mark.parametrize(
    "recipe",
    [
        change_part(RESNET, "parallel", compress="bf16"),
        change_part(RESNET, "parallel", compress="fp16", bucket_mb=0.01),
        change_part(change_part(RESNET, "precision", compute="bf16"), "parallel", sync_norm=False),
        change_part(RESNET, "precision", compute="O2"),
    ],
    ids=["bf16 gradients", "fp16 gradients", "autocast", "O2"],
)
def test_what_rounds_more_still_trains_alike(recipe: Recipe, alone: Path, tmp_path: Path) -> None:
    recipe = replace(recipe, steps=10)
    run = tmp_path / "run"
    train_on_ranks(2, run, recipe)
    ours, theirs = losses(run), losses(alone)[:10]
    assert max(abs(first - second) / second for first, second in zip(ours, theirs, strict=True)) < 0.05
    assert not any(name.startswith("module.") for name in load_file(run / "model.safetensors"))


def score(run: Path) -> list[dict[str, Any]]:
    from viaduct.training.scoring import score_checkpoints

    return score_checkpoints(run, data=None, device="cpu", precision=None, step=None, every=False)


RECIPE_FILE = """
from training.test_distributed import RESNET
recipe = RESNET
"""


def test_every_image_is_scored_once_whatever_the_ranks(tmp_path: Path) -> None:
    from viaduct.recipes import load, replace

    file, run = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(RECIPE_FILE)
    loaded = load(str(file))
    recipe = replace(loaded.recipe, steps=10)
    run_training(TrainingRequest(replace(loaded, recipe=recipe), RunDir(run), None, "cpu", "auto", "viaduct train"))
    (score_value,) = score(run)
    ranks = [ended.value for ended in run_on_ranks(3, score, run)]
    assert ranks[1:] == [[], []]
    (three,) = ranks[0]
    assert three["count"] == 70
    assert three["confusion"] == score_value["confusion"]
    assert three["top5"] == score_value["top5"]
    assert three["loss"] == pytest.approx(score_value["loss"], rel=1e-6)


class SignalOne(Callback):
    """Rank 1 alone is sent a signal."""

    every_rank = True

    def step(self, training: Training) -> None:
        if training.step == 4 and training.group.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_to_one_rank_stops_all_after_the_same_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = run_on_ranks(3, run_recipe, run, replace(TINY, epochs=20, callbacks=(SignalOne(),)))
    assert [(process.value.finished, process.value.signal) for process in ended] == [(False, signal.SIGTERM)] * 3
    assert len({process.value.step for process in ended}) == 1
    assert "Stopped after step 5 of 100" in ended[0].output
    assert f"viaduct train --run {run} --ranks 3" in ended[0].output
    assert '<span class="flag">--ranks</span> 3' in (run / "report.html").read_text()
    assert [process.output for process in ended[1:]] == ["", ""]
    assert SavedCheckpoint(run / "checkpoints" / "step-5").find_damage() is None
    assert [record["step"] for record in records(run, "checkpoint")] == [2, 4, 5]


class StopFirst(Callback):
    """Runs on rank 0 only."""

    def step(self, training: Training) -> None:
        if training.step == 3:
            training.request_stop("enough")


def test_a_stop_that_rank_0_asks_for_ends_all(tmp_path: Path) -> None:
    ended = train_on_ranks(2, tmp_path / "run", replace(TINY, epochs=20, callbacks=(StopFirst(),)))
    assert [process.value.finished for process in ended] == [True, True]
    summary = RunDir(tmp_path / "run").read_summary()
    assert summary is not None
    assert (summary["stopped"], summary["steps"]) == ("enough", 4)


def test_saving_by_the_clock_is_agreed_on(tmp_path: Path) -> None:
    often = Checkpoint(every_minutes=1e-5, keep=100, keep_best=False)
    train_on_ranks(3, tmp_path / "run", replace(TINY, epochs=4, checkpoint=often))
    steps = [record["step"] for record in records(tmp_path / "run", "checkpoint")]
    assert len(steps) >= 5
    assert steps[-1] == 20
    assert min(after - before for before, after in pairwise(steps)) >= 2, "saved for one wish twice"


def bad_on_rank_1(logits: Tensor, labels: Tensor) -> Tensor:
    """Give rank 1 a NaN loss from the third step on (its graph is made five times an epoch)."""
    loss = nn.functional.cross_entropy(logits, labels)
    bad_on_rank_1.calls += logits.requires_grad  # type: ignore[attr-defined]
    wrong = os.environ.get("RANK") == "1" and bad_on_rank_1.calls >= 3  # type: ignore[attr-defined]
    return loss * float("nan") if wrong else loss


bad_on_rank_1.calls = 0  # type: ignore[attr-defined]


def test_a_loss_that_is_bad_on_one_rank_stops_all_and_one_says_so(tmp_path: Path) -> None:
    ended = run_on_ranks(3, run_recipe, tmp_path / "run", replace(TINY, loss=bad_on_rank_1))
    for process in ended:
        assert process.error is not None
        assert process.error.startswith("Diverged: the loss became nan at step 3")
        assert "step-2" in process.error
    assert [result.is_silent for result in ended] == [False, True, True]


class Overflow(Callback):
    """Rank 1 multiplies its loss beyond fp32 in its third step."""

    every_rank = True

    def step(self, training: Training) -> None:
        if training.group.rank == 1:
            plain = training.train_step.compute_loss if not hasattr(self, "plain") else self.plain
            self.plain = plain
            huge = 1e38 if training.step == 2 else 1.0
            setattr(training.train_step, "compute_loss", lambda *given: plain(*given) * huge * huge)  # noqa: B010


def scales_and_weights(run: Path, recipe: Recipe) -> tuple[int, float, dict[str, Tensor]]:
    from viaduct import devices
    from viaduct.training.images import load_images

    with join_ranks("cpu", 30) as group:
        room, device_name = devices.pick("cpu", group.local_rank)
        training = Training(
            recipe, RunDir(run), load_images(recipe.data, None), room, device_name, list(recipe.callbacks), group=group
        )
        training.run_state.broadcast(training.run.checkpoints)
        with training.train_batches, training.validation:
            training.fit()
        return training.scale.skipped, training.scale.value, dict(training.model.state_dict())


def test_ranks_agree_on_steps_that_overflowed(tmp_path: Path) -> None:
    recipe = change_part(TINY, "precision", loss_scale="dynamic", scale_start=4.0)
    ended = run_on_ranks(2, scales_and_weights, tmp_path, replace(recipe, callbacks=(Overflow(),)))
    assert [process.error for process in ended] == [None, None], ended[0].output + ended[1].output
    (skipped, scale, ours), (skipped_too, scale_too, theirs) = (process.value for process in ended)
    assert (skipped, scale) == (skipped_too, scale_too) == (1, 2.0)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_rank_0_refuses_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    ended = run_on_ranks(3, run_recipe, tmp_path, TINY)
    assert all(process.error is not None and "is not empty and holds no run" in process.error for process in ended)
    assert [result.is_silent for result in ended] == [False, True, True]
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_error_of_one_rank_names_it(tmp_path: Path) -> None:
    ended = run_on_ranks(2, fail_on_rank_1)
    assert ended[1].error == "BadValue: rank 1: something was wrong here."
    assert ended[0].error is not None
    assert ended[0].error.startswith("LostRank: rank 0 lost another rank of the run")


def fail_on_rank_1() -> None:
    with join_ranks("cpu", 30) as group:
        if group.rank == 1:
            raise BadValue("something was wrong here.")
        group.broadcast_value([0])
        group.gather(1)


def test_more_ranks_than_images_in_a_batch(tmp_path: Path) -> None:
    ended = run_on_ranks(3, run_recipe, tmp_path / "run", change_part(TINY, "data", global_batch=2))
    assert ended[0].error is not None
    assert "a global batch of 2 leaves some of 3 ranks without an image" in ended[0].error
    assert not (tmp_path / "run").exists()


PLACE = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"MASTER_PORT": ""}, "RANK=1 makes this a rank of a job, which needs MASTER_PORT, too"),
        ({"RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"LOCAL_RANK": "first"}, "LOCAL_RANK is 'first'; it must be a whole number"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    ],
)
def test_wrong_variables_are_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        read_group(PLACE | variables)


def test_without_torchruns_variables_a_run_is_alone() -> None:
    assert read_group({}) is ALONE
    assert read_group({"WORLD_SIZE": "8"}) is ALONE
    assert read_group(PLACE) == Group(1, 2, 1, 2)


def test_a_rendezvous_address_that_nobody_answers_at_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (PLACE | {"MASTER_PORT": str(free_port())}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "GRACE_S", 0.0)
    message = r"rank 1 of 2 cannot reach the rendezvous address 127.0.0.1:\d+"
    with pytest.raises(ViaductError, match=message), join_ranks("cpu", 2):
        pass


def test_a_request_of_a_single_rank_takes_effect_at_once() -> None:
    agreement = Agreement(ALONE, lambda: 15)
    assert agreement.get_signal() == 15
    assert agreement.is_save_due(True)
    assert not agreement.is_save_due(False)


def test_the_order_of_the_images_is_that_of_one_rank(alone: Path) -> None:
    order = draw_permutation(RESNET.seed, 0, 640)
    assert samples(alone)[0] == sorted(order[:64].tolist())
