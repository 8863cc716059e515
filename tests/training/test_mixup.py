"""Mixup: the formula against NumPy, the distribution of its draws, and runs that can be cut up anywhere."""

from __future__ import annotations

import math
from dataclasses import replace
from shutil import which

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.test_loop import interrupted_at, resume_training, same
from training.tiny_runs import (
    CLASSES,
    RECIPE,
    Recorder,
    build_normed_network,
    build_training,
    copy_weights,
    train_recipe,
)
from viaduct.recipes import CrossEntropy
from viaduct.training.mixup import draw_cutmix_rows, draw_mixup_weights, mix
from viaduct.training.rundir import RunDir

MIXED = replace(RECIPE, mixup=0.2, loss=CrossEntropy(label_smoothing=0.1))


def test_a_run_without_mixup_sees_its_images_and_labels_as_they_are(run: RunDir) -> None:
    plain = build_training(RECIPE, run)
    batch = next(iter(plain.train_batches.epoch(0)))
    images, labels = plain.train_step.mix_batch(batch, plain.train_step.draw_mixing_weights())
    assert images is batch.images
    assert labels is batch.labels


def test_images_and_labels_are_mixed_with_the_batch_in_reverse() -> None:
    rng = np.random.default_rng(1)
    images = rng.normal(size=(5, 3, 4, 4)).astype(np.float32)
    labels, share = np.array([0, 3, 2, 1, 0]), rng.uniform(size=5).astype(np.float32)
    mixed, shares = mix(torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(share), CLASSES)
    w = share[:, None, None, None]
    np.testing.assert_allclose(mixed.numpy(), w * images + (1 - w) * images[::-1], atol=1e-6)
    truth = np.eye(CLASSES)[labels]
    np.testing.assert_allclose(shares.numpy(), share[:, None] * truth + (1 - share[:, None]) * truth[::-1], atol=1e-6)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    assert shares[0].tolist() == [1, 0, 0, 0]  # its partner is of its own class


def test_the_loss_of_mixed_labels_is_the_mixture_of_the_losses(run: RunDir) -> None:
    rng = torch.Generator().manual_seed(2)
    logits, labels = torch.randn(6, CLASSES, generator=rng), torch.tensor([0, 1, 2, 3, 1, 1])
    share = torch.rand(6, generator=rng)
    _, shares = mix(torch.zeros(6, 3, 1, 1), labels, share, CLASSES)
    found = build_training(MIXED, run).train_step.loss(logits, shares)
    log_p = np.log(np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True))
    smooth = np.eye(CLASSES)[labels.numpy()] * 0.9 + 0.1 / CLASSES
    target = share.numpy()[:, None] * smooth + (1 - share.numpy()[:, None]) * smooth[::-1]
    assert float(found) == pytest.approx(-(target * log_p).sum(1).mean(), rel=1e-5)


def beta_moments(alpha: float) -> tuple[float, float]:
    """Variance and fourth central moment of Beta(alpha, alpha)."""
    variance = 1 / (4 * (2 * alpha + 1))
    return variance, variance**2 * (3 - 6 / (2 * alpha + 3))


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 4.0])
def test_draws_have_the_beta_distribution(alpha: float) -> None:
    draws = np.concatenate([draw_mixup_weights(alpha, 1, step, 10_000) for step in range(20)]).astype(float)
    assert 0 <= draws.min() <= draws.max() <= 1
    variance, fourth = beta_moments(alpha)
    error = math.sqrt(variance / len(draws))
    assert draws.mean() == pytest.approx(0.5, abs=5 * error)
    assert draws.var() == pytest.approx(variance, rel=0.02)
    assert ((draws - 0.5) ** 4).mean() == pytest.approx(fourth, rel=0.03)


def test_draws_with_a_closed_form_have_its_quantiles() -> None:
    quantiles = np.linspace(0.05, 0.95, 19)
    uniform = draw_mixup_weights(1.0, 3, 0, 100_000)
    np.testing.assert_allclose(np.quantile(uniform, quantiles), quantiles, atol=0.008)
    arcsine = draw_mixup_weights(0.5, 3, 0, 100_000)
    np.testing.assert_allclose(np.quantile(arcsine, quantiles), np.sin(np.pi * quantiles / 2) ** 2, atol=0.01)


def test_every_step_and_every_seed_has_draws_of_its_own() -> None:
    first = draw_mixup_weights(0.2, 1, 7, 64)
    assert np.array_equal(first, draw_mixup_weights(0.2, 1, 7, 64))
    assert not np.array_equal(first, draw_mixup_weights(0.2, 1, 8, 64))
    assert not np.array_equal(first, draw_mixup_weights(0.2, 2, 7, 64))
    assert len(np.unique(first)) > 60


def test_a_very_small_parameter_hardly_mixes_and_is_finite() -> None:
    draws = draw_mixup_weights(1e-4, 1, 0, 1000)
    assert np.isfinite(draws).all()
    assert ((draws < 0.01) | (draws > 0.99)).mean() > 0.99


@pytest.mark.parametrize("step", [1, 5, 7])
def test_a_resumed_run_mixes_what_it_would_have_mixed(run: RunDir, step: int) -> None:
    recipe = replace(MIXED, model=build_normed_network)
    expected = copy_weights(train_recipe(recipe, run))
    assert same(copy_weights(resume_training(recipe, run, interrupted_at(step, recipe, run))), expected)
    assert not same(copy_weights(train_recipe(replace(recipe, mixup=0.0), run)), expected)


def test_parts_of_a_batch_are_mixed_as_the_whole(run: RunDir) -> None:
    recorders = Recorder(), Recorder()
    uninterrupted = copy_weights(train_recipe(MIXED, run, recorders[0]))
    made = copy_weights(train_recipe(replace(MIXED, accumulate=4), run, recorders[1]))
    for name, tensor in uninterrupted.items():
        torch.testing.assert_close(made[name], tensor, rtol=1e-4, atol=1e-6)
    for first, second in zip(recorders[0].logs, recorders[1].logs, strict=True):
        assert (second.loss, second.top1) == (pytest.approx(first.loss, rel=1e-4), first.top1)


@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.lengthy
def test_a_compiled_network_is_trained_on_mixed_images(run: RunDir) -> None:
    eager = copy_weights(train_recipe(replace(MIXED, steps=2), run))
    compiled = copy_weights(train_recipe(replace(MIXED, steps=2, mode="graph"), run))
    for name, tensor in eager.items():
        torch.testing.assert_close(compiled[name].cpu(), tensor.cpu(), rtol=1e-3, atol=1e-5)


class Constantly(nn.Module):
    """Always of the same opinion."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return (self.bias + torch.eye(len(self.bias))[2].to(x_NCHW.device)).expand(len(x_NCHW), -1)


def test_training_accuracy_counts_the_stronger_label(run: RunDir) -> None:
    recorder = Recorder()
    recipe = replace(RECIPE, model=Constantly, mixup=1.0, steps=1)
    stopped = build_training(recipe, run, recorder)
    batch = next(iter(stopped.train_batches.epoch(0)))
    share = draw_mixup_weights(1.0, recipe.seed, 0, 8)
    own, other = batch.labels.cpu().numpy(), batch.labels.cpu().numpy()[::-1]
    expected = np.mean(np.where(share > 0.5, own, other) == 2)
    stopped.train_step.optimize(batch)
    stopped.progress.step = 1
    stopped.log()
    assert recorder.logs[0].top1 == expected


def test_cutmix_replaces_a_box_by_the_mirrors_and_mixes_labels_by_its_area() -> None:
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 8, 8)
    rows = torch.from_numpy(draw_cutmix_rows(0.0, 1.0, 1, 0, 4, 8))
    mixed, shares = mix(images, torch.tensor([0, 1, 2, 3]), rows, CLASSES)
    for index in range(4):
        own = (mixed[index, 0] == index).float().mean()
        assert set(mixed[index].unique().tolist()) <= {float(index), 3.0 - index}
        assert shares[index, index] == pytest.approx(float(own))
        assert shares[index, 3 - index] == pytest.approx(1 - float(own))
    assert float(shares.min(1).values.max()) == 0
    assert float(shares[2].max()) < 1


def test_boxes_of_cutmix_have_the_area_that_is_drawn() -> None:
    rows = draw_cutmix_rows(0.0, 1.0, 1, 0, 20_000, 224)
    areas = (rows[:, 3] - rows[:, 2]) * (rows[:, 5] - rows[:, 4]) / 224**2
    np.testing.assert_allclose(1 - rows[:, 0], areas, atol=1e-6)
    inside = (rows[:, 2] > 0) & (rows[:, 3] < 224) & (rows[:, 4] > 0) & (rows[:, 5] < 224)
    assert areas[inside].max() < 1
    assert (rows[:, 1] == 1).all()
    assert 0.25 < areas.mean() < 0.4  # uniform before the edges cut them


def test_with_mixup_and_cutmix_each_mixes_half_of_the_images() -> None:
    rows = draw_cutmix_rows(0.8, 1.0, 1, 3, 10_000, 32)
    is_mixed_up = (rows[:, 2:] == 0).all(1) & (rows[:, 1] < 1)
    assert is_mixed_up.mean() == pytest.approx(0.5, abs=0.03)
    assert np.array_equal(rows[is_mixed_up, 0], draw_mixup_weights(0.8, 1, 3, 10_000)[is_mixed_up])


@pytest.mark.parametrize("sink", [0, 4])
def test_a_resumed_run_cuts_what_it_would_have_cut(run: RunDir, sink: int) -> None:
    recipe = replace(MIXED, model=build_normed_network, cutmix=1.0, sink=sink)
    expected = copy_weights(train_recipe(recipe, run))
    assert same(copy_weights(resume_training(recipe, run, interrupted_at(5, recipe, run))), expected)
    assert not same(copy_weights(train_recipe(replace(recipe, cutmix=0.0), run)), expected)
