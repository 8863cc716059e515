"""Effects of a second head and of drop path on a step."""

from __future__ import annotations

from dataclasses import replace
from shutil import which

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.test_loop import interrupted_at, resume_training, same
from training.tiny_runs import CLASSES, RECIPE, Recorder, build_training, copy_weights, train_recipe
from viaduct.recipes import CrossEntropy, Precision, Sgd
from viaduct.training.rundir import RunDir


class TwoHeads(nn.Module):
    """Network that returns (logits, auxiliary logits) in training, logits otherwise."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head, self.aux = nn.Linear(3, classes), nn.Linear(3, classes)

    def forward(self, x_NCHW: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        seen = x_NCHW.mean((2, 3))
        logits = self.head(seen)
        return (logits, self.aux(seen)) if self.training else logits


TWO = replace(RECIPE, model=TwoHeads, loss=CrossEntropy(0.1), optimizer=Sgd(lr=0.5, momentum=0.0), steps=1)


def test_one_step_follows_the_gradient_of_both_losses(run: RunDir) -> None:
    done = build_training(TWO, run)
    by_hand = TwoHeads(CLASSES)
    by_hand.load_state_dict({name: tensor.cpu() for name, tensor in copy_weights(done).items()})
    batch = next(iter(done.train_batches.epoch(0)))
    logits, auxiliary = by_hand(batch.images.cpu())
    labels = batch.labels.cpu()
    loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
    loss = loss + 0.4 * F.cross_entropy(auxiliary, labels, label_smoothing=0.1)
    loss.backward()
    done.computation.train(True)
    done.train_step.set_rates(0, round_rates=False)
    done.train_step.optimize(batch)
    for name, parameter in by_hand.named_parameters():
        torch.testing.assert_close(copy_weights(done)[name].cpu(), parameter.detach() - 0.5 * parameter.grad)
    assert float(done.train_step.results[0][0]) == pytest.approx(float(loss.detach()), rel=1e-6)


def test_a_weight_of_zero_leaves_the_second_head_alone(run: RunDir) -> None:
    before = copy_weights(build_training(TWO, run))
    after = copy_weights(train_recipe(replace(TWO, aux_weight=0.0), run))
    assert torch.equal(after["aux.weight"], before["aux.weight"])
    assert not torch.equal(after["head.weight"], before["head.weight"])


def test_evaluation_sees_the_first_head_only(run: RunDir) -> None:
    done = train_recipe(TWO, run)
    assert done.score is not None
    done.model.eval()
    batch = next(iter(build_training(TWO, run).validation.epoch(0)))
    assert done.score.predictions[: len(batch.labels)] == done.model(batch.images).argmax(1).tolist()


@pytest.mark.parametrize("word", ["bf16", "O2"])
def test_both_heads_are_trained_in_less_than_fp32(run: RunDir, word: str) -> None:
    recorder = Recorder()
    train_recipe(replace(TWO, precision=Precision(word), steps=3), run, recorder)
    exact = Recorder()
    train_recipe(replace(TWO, steps=3), run, exact)
    assert recorder.logs[-1].loss == pytest.approx(exact.logs[-1].loss, rel=0.02)


def agree(made: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in expected.items():
        torch.testing.assert_close(made[name], tensor, rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_give_the_weights_of_the_whole(run: RunDir) -> None:
    uninterrupted = copy_weights(train_recipe(replace(TWO, steps=2), run))
    agree(copy_weights(train_recipe(replace(TWO, steps=2, accumulate=4), run)), uninterrupted)


@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.lengthy
def test_a_compiled_network_has_both_heads(run: RunDir) -> None:
    uninterrupted = copy_weights(train_recipe(replace(TWO, steps=2), run))
    agree(copy_weights(train_recipe(replace(TWO, steps=2, mode="graph"), run)), uninterrupted)


class Dropping(nn.Module):
    """Drops more and more, and remembers what it was told."""

    progress: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(3, classes)
        self.told: list[float] = []
        self.register_buffer("progress", torch.tensor(1.0), persistent=False)

    def set_progress(self, share: float) -> None:
        self.told.append(share)
        self.progress.fill_(share)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        seen = x_NCHW.mean((2, 3))
        kept = torch.floor(1 - 0.5 * self.progress + torch.rand(len(seen), 1, device=seen.device))
        logits: Tensor = self.head(seen * kept.to(seen.dtype) if self.training else seen)
        return logits


def test_a_network_gets_the_progress_of_the_run(run: RunDir) -> None:
    done = train_recipe(replace(RECIPE, model=Dropping), run)
    assert done.model.told == [step / 10 for step in range(10)]


def test_a_cast_network_gets_the_progress_too(run: RunDir) -> None:
    done = train_recipe(replace(RECIPE, model=Dropping, precision=Precision("O2"), steps=4), run)
    network = done.computation.network
    assert network is not done.model
    assert network.told == done.model.told == [0, 0.25, 0.5, 0.75]


def test_a_resumed_run_drops_what_it_would_have_dropped(run: RunDir) -> None:
    recipe = replace(RECIPE, model=Dropping)
    again = resume_training(recipe, run, interrupted_at(6, recipe, run))
    assert again.model.told == [step / 10 for step in range(6, 10)]
    assert same(copy_weights(again), copy_weights(train_recipe(recipe, run)))


class Growing(Dropping):
    """Loss whose weight grows as the run goes on."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        logits: Tensor = self.head(x_NCHW.mean((2, 3))) * self.progress
        return logits


@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.lengthy
def test_a_compiled_network_gets_the_progress_of_the_run(run: RunDir) -> None:
    recipe = replace(RECIPE, model=Growing, steps=4)
    agree(copy_weights(train_recipe(replace(recipe, mode="graph"), run)), copy_weights(train_recipe(recipe, run)))
