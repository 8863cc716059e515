"""Optimizers and losses against the formulas of TF1 and the book, written out in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from training.tiny_runs import CLASSES, RECIPE, Recorder, build_normed_network, train_recipe
from viaduct.recipes import AdamW, CrossEntropy, Lars, RmsProp, Sgd, Thor
from viaduct.training.optim import build_decay_groups, build_loss, build_optimizer, compute_l2_loss
from viaduct.training.rundir import RunDir

RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.01


def network() -> nn.Module:
    torch.manual_seed(3)
    return build_normed_network(4)


def names_in(groups: list[dict[str, object]], model: nn.Module) -> list[tuple[object, set[str]]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [(group["weight_decay"], {names[id(parameter)] for parameter in group["params"]}) for group in groups]


CONVOLUTION, NORM, DENSE, BIAS = {"0.weight"}, {"1.weight", "1.bias"}, {"5.weight"}, {"5.bias"}


def test_weights_decay_without_biases_and_norms() -> None:
    model = network()
    groups = names_in(build_decay_groups(model, "weights", 0.1), model)
    assert groups == [(0.1, CONVOLUTION | DENSE), (0.0, NORM | BIAS)]


def test_not_norm_decays_the_dense_bias_too() -> None:
    model = network()
    groups = names_in(build_decay_groups(model, "not_norm", 0.1), model)
    assert groups == [(0.1, CONVOLUTION | DENSE | BIAS), (0.0, NORM)]


def test_all_decays_everything_in_one_group() -> None:
    model = network()
    assert names_in(build_decay_groups(model, "all", 0.1), model) == [(0.1, CONVOLUTION | DENSE | BIAS | NORM)]


def test_frozen_parameters_are_not_optimized() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = build_optimizer(replace(RECIPE, optimizer=Sgd(decay="weights")), model)
    assert names_in(optimizer.param_groups, model)[0][1] == DENSE


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm3d(4), nn.LayerNorm(4), nn.GroupNorm(2, 4)])
def test_every_kind_of_norm_is_a_norm(norm: nn.Module) -> None:
    groups = build_decay_groups(norm, "not_norm", 0.1)
    assert [group["weight_decay"] for group in groups] == [0.0]


def gradients(weights: list[np.ndarray], step: int) -> list[np.ndarray]:
    """Something that depends on the weights, and differs from step to step."""
    return [np.cos(weight * (step + 1)) for weight in weights]


def run_torch(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], steps: int) -> list[np.ndarray]:
    parameters = list(parameters)
    for step in range(steps):
        now = [parameter.detach().numpy().copy() for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients(now, step), strict=True):
            parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_sgd_is_tensorflows_momentum_with_l2_in_the_loss(nesterov: bool, decay: float) -> None:
    model = network()
    weights = [parameter.detach().numpy().astype(np.float64) for parameter in model.parameters()]
    accumulators = [np.zeros_like(weight) for weight in weights]
    for step in range(6):
        found = gradients(weights, step)
        for i, gradient in enumerate(found):
            gradient = gradient + decay * weights[i]  # before the momentum
            accumulators[i] = MOMENTUM * accumulators[i] + gradient  # the rate is not inside
            update = gradient + MOMENTUM * accumulators[i] if nesterov else accumulators[i]
            weights[i] = weights[i] - RATE * update
    part = Sgd(RATE, MOMENTUM, nesterov=nesterov, weight_decay=decay, decay="all")
    optimizer = build_optimizer(replace(RECIPE, optimizer=part), model)
    for ours, reference in zip(run_torch(optimizer, model.parameters(), 6), weights, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=1e-6)


def test_sgd_changes_rates_without_carrying_the_old_one_in_its_momentum() -> None:
    weight = nn.Parameter(torch.zeros(1))
    model = nn.Module()
    model.weight = weight
    optimizer = build_optimizer(replace(RECIPE, optimizer=Sgd(1.0, 0.5)), model)
    for rate, expected in ((1.0, -1.0), (0.1, -1.0 - 0.1 * 1.5)):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.ones(1)
        optimizer.step()
        assert weight.item() == pytest.approx(expected)


def test_nesterov_without_momentum_is_plain_descent() -> None:
    model = network()
    before = [parameter.detach().numpy().copy() for parameter in model.parameters()]
    optimizer = build_optimizer(replace(RECIPE, optimizer=Sgd(RATE, 0.0, nesterov=True)), model)
    after = run_torch(optimizer, model.parameters(), 1)
    for old, gradient, new in zip(before, gradients(before, 0), after, strict=True):
        np.testing.assert_allclose(new, old - RATE * gradient, rtol=1e-5, atol=1e-6)


def test_adamw_is_its_papers_algorithm() -> None:
    model = network()
    weights = [parameter.detach().numpy().astype(np.float64) for parameter in model.parameters()]
    first, second = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    b1, b2 = 0.8, 0.95
    for step in range(5):
        for i, gradient in enumerate(gradients(weights, step)):
            first[i] = b1 * first[i] + (1 - b1) * gradient
            second[i] = b2 * second[i] + (1 - b2) * gradient**2
            right_1, right_2 = first[i] / (1 - b1 ** (step + 1)), second[i] / (1 - b2 ** (step + 1))
            weights[i] = weights[i] - RATE * (right_1 / (np.sqrt(right_2) + 1e-6) + DECAY * weights[i])
    part = AdamW(RATE, betas=(b1, b2), epsilon=1e-6, weight_decay=DECAY, decay="all")
    optimizer = build_optimizer(replace(RECIPE, optimizer=part), model)
    for ours, reference in zip(run_torch(optimizer, model.parameters(), 5), weights, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)


PARTS = [
    Sgd(0.1),
    AdamW(1e-2),
    RmsProp(0.1),
    Lars(0.1, trust=0.2),
    Lars(0.1, trust=0.2, form="resnext"),
    Thor(0.02, frequency=5),
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_a_network_learns_with_every_optimizer(part: object, run: RunDir) -> None:
    recorder = Recorder()
    train_recipe(replace(RECIPE, model=build_normed_network, optimizer=part, epochs=6), run, recorder)
    losses = [record.loss for record in recorder.logs]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_every_optimizer_holds_each_trainable_parameter_once(part: object) -> None:
    model = network()
    model[1].bias.requires_grad_(False)
    optimizer = build_optimizer(replace(RECIPE, optimizer=part), model)
    held = [name for _, names in names_in(optimizer.param_groups, model) for name in names]
    assert sorted(held) == sorted(CONVOLUTION | DENSE | BIAS | {"1.weight"})


def test_an_optimizer_of_the_user_gets_the_trainable_parameters() -> None:
    model = network()
    model[1].weight.requires_grad_(False)
    optimizer = build_optimizer(replace(RECIPE, optimizer=lambda found: torch.optim.RMSprop(found, lr=0.3)), model)
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [
        id(p) for p in model.parameters() if p is not model[1].weight
    ]


LOGITS = np.random.default_rng(0).normal(size=(6, 4))
LABELS = np.array([0, 3, 1, 1, 2, 0])


def cross_entropy(targets: np.ndarray) -> float:
    log_softmax = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
    return float(-(targets * log_softmax).sum(1).mean())


def loss_of(part: object, *, training: bool) -> float:
    found = build_loss(replace(RECIPE, loss=part), training=training)
    return float(found(torch.from_numpy(LOGITS), torch.from_numpy(LABELS)))


@pytest.mark.parametrize("spread", ["all", "others"])
def test_labels_are_not_smoothed_in_evaluation(spread: str) -> None:
    part = CrossEntropy(0.1, spread)
    assert loss_of(part, training=False) == pytest.approx(cross_entropy(np.eye(4)[LABELS]))


def test_tensorflows_smoothing_gives_every_class_its_share() -> None:
    targets = 0.9 * np.eye(4)[LABELS] + 0.1 / 4
    assert loss_of(CrossEntropy(0.1), training=True) == pytest.approx(cross_entropy(targets))


def test_the_books_smoothing_gives_only_the_other_classes_a_share() -> None:
    targets = np.where(np.eye(4)[LABELS] == 1, 0.9, 0.1 / 3)
    assert loss_of(CrossEntropy(0.1, "others"), training=True) == pytest.approx(cross_entropy(targets))


def test_a_loss_of_the_user_is_used_in_training_and_evaluation() -> None:
    def own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (logits.sum() * 0 + labels.sum()).double()

    assert loss_of(own, training=True) == loss_of(own, training=False) == LABELS.sum()


def list_decayed(model: nn.Module, decay: str) -> list[np.ndarray]:
    norms = CONVOLUTION | DENSE | BIAS if decay == "not_norm" else CONVOLUTION | DENSE
    return [parameter.detach().numpy() for name, parameter in model.named_parameters() if name in norms]


@pytest.mark.parametrize("part", [Sgd(weight_decay=0.0), AdamW(weight_decay=0.1)])
def test_no_l2_term_is_reported_where_the_loss_has_none(part: object) -> None:
    assert float(compute_l2_loss(build_optimizer(replace(RECIPE, optimizer=part), network()))) == 0


@pytest.mark.parametrize("decay", ["not_norm", "weights"])
def test_the_l2_term_is_half_the_decay_times_the_squares_of_what_decays(decay: str) -> None:
    model = network()
    optimizer = build_optimizer(replace(RECIPE, optimizer=Sgd(weight_decay=2e-4, decay=decay)), model)
    expected = 2e-4 * sum(float((weight.astype(np.float64) ** 2).sum()) / 2 for weight in list_decayed(model, decay))
    assert float(compute_l2_loss(optimizer)) == pytest.approx(expected, rel=1e-5)


def test_the_l2_term_is_tensorflows() -> None:
    tf = pytest.importorskip("tensorflow", reason="compares with tf.nn.l2_loss; install viaduct[tf]")
    model = network()
    optimizer = build_optimizer(replace(RECIPE, optimizer=Sgd(weight_decay=1e-4, decay="not_norm")), model)
    theirs = 1e-4 * sum(float(tf.nn.l2_loss(weight)) for weight in list_decayed(model, "not_norm"))
    assert float(compute_l2_loss(optimizer)) == pytest.approx(theirs, rel=1e-5)


def test_smoothing_without_smoothing_is_the_plain_loss() -> None:
    logits, labels = torch.randn(4, CLASSES), torch.arange(4)
    for smooth in (False, True):
        loss = build_loss(replace(RECIPE, loss=CrossEntropy(0.0, smooth_evaluation=smooth)), training=False)
        assert torch.equal(loss(logits, labels), F.cross_entropy(logits, labels))
