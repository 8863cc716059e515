"""THOR against K-FAC in NumPy from explicit patches, and what it must not do between its refreshes."""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from training.ranks import run_on_ranks
from training.tiny_runs import RECIPE, After, build_normed_network, build_training, copy_weights, train_recipe
from viaduct import devices
from viaduct.errors import BadValue
from viaduct.models.padding import SameConv2d
from viaduct.recipes import Parallel, Precision, Sgd, Thor
from viaduct.training import curvature
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.distributed import join_ranks
from viaduct.training.optim import build_optimizer, compute_l2_loss
from viaduct.training.parallel import SingleRank
from viaduct.training.rundir import RunDir
from viaduct.training.thor import ThorOptimizer, compute_damping

RATE, MOMENTUM, DECAY, DAMPING = 0.1, 0.9, 0.01, 0.03


class Net(nn.Module):
    """A lopsided SAME convolution, a grouped one with padding and dilation, a 1x1 with stride, norms and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SameConv2d(3, 6, 3, stride=2)
        self.norm = nn.BatchNorm2d(6)
        self.grouped = nn.Conv2d(6, 4, (3, 1), padding=(2, 0), dilation=(2, 1), groups=2, bias=False)
        self.point = nn.Conv2d(4, 5, 1, stride=2)
        self.head = nn.Linear(5, 4)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x_NCHW = F.relu(self.norm(self.first(x_NCHW)), inplace=True)
        x_NCHW = F.relu(self.point(self.grouped(x_NCHW)))
        return self.head(x_NCHW.mean((2, 3)))


def network() -> nn.Module:
    torch.manual_seed(3)
    return Net().to(memory_format=torch.channels_last)


def batch(step: int, count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(count, 3, 10, 10, generator=generator).to(memory_format=torch.channels_last)
    return images, torch.randint(0, 4, (count,), generator=generator)


def build(model: nn.Module, **fields: Any) -> ThorOptimizer:
    settings = {"lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY, "frequency": 3, "damping_init": DAMPING}
    optimizer = build_optimizer(replace(RECIPE, optimizer=Thor(**{**settings, **fields})), model)
    assert isinstance(optimizer, ThorOptimizer)
    return optimizer


def take_step(optimizer: ThorOptimizer, model: nn.Module, step: int, scale: float = 1.0) -> float:
    images, labels = batch(step)
    if optimizer.is_refresh_due:
        with optimizer.record_factors(model, scale):
            loss = F.cross_entropy(model(images), labels)
    else:
        loss = F.cross_entropy(model(images), labels)
    (loss * scale).backward()
    for parameter in model.parameters():
        parameter.grad /= scale
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


# The reference: everything below is float64 NumPy, with loops where a loop is plainest.


def im2col(x: np.ndarray, kernel: tuple[int, int], stride: int, pads: Any, dilation: tuple[int, int]) -> np.ndarray:
    """One row for each image and place, (N, places, channels * kernel)."""
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    high, wide = ((x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride + 1 for i in range(2))
    rows = []
    for i in range(high):
        for j in range(wide):
            down = [i * stride + k * dilation[0] for k in range(kernel[0])]
            right = [j * stride + k * dilation[1] for k in range(kernel[1])]
            rows.append(x[:, :, down][:, :, :, right].reshape(len(x), -1))
    return np.stack(rows, 1)


def blocked_inverse(matrix: np.ndarray, block: int) -> np.ndarray:
    result = np.zeros_like(matrix)
    for start in range(0, len(matrix), block or len(matrix)):
        part = slice(start, start + (block or len(matrix)))
        result[part, part] = np.linalg.inv(matrix[part, part])
    return result


def convolution_inverses(
    rows: np.ndarray, slopes: np.ndarray, form: str, block: int, damping: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """rows (N, places, columns) and slopes (N, places, outputs) of one group, by section 14."""
    images, positions = rows.shape[:2]
    slopes = slopes * images
    if form == "gpu":
        rows, slopes, images = rows.mean(0, keepdims=True), slopes.mean(0, keepdims=True), 1
    rows, slopes = rows.reshape(-1, rows.shape[-1]), slopes.reshape(-1, slopes.shape[-1])
    extra = math.sqrt(damping / positions)
    a = rows.T @ rows / len(rows) + extra * np.eye(rows.shape[1])
    g = slopes.T @ slopes / len(slopes) + extra * np.eye(slopes.shape[1])
    return blocked_inverse(a, block), blocked_inverse(g, block), 1 / positions


def dense_inverses(x: np.ndarray, d: np.ndarray, block: int, damping: float) -> tuple[np.ndarray, np.ndarray, float]:
    a = x.T @ x / len(x) + math.sqrt(damping) * np.eye(x.shape[1])
    g = d.T @ d / len(x) * len(x) ** 2 + math.sqrt(damping) * np.eye(d.shape[1])
    return blocked_inverse(a, block), blocked_inverse(g, block), 1.0


def passing_by(model: Net, images: Tensor, labels: Tensor) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The inputs of each layer and the gradients of its outputs, written out with autograd."""
    a = images
    b = model.first(a)
    c = F.relu(model.norm(b))
    d = model.grouped(c)
    e = model.point(d)
    f = F.relu(e).mean((2, 3))
    g = model.head(f)
    slopes = torch.autograd.grad(F.cross_entropy(g, labels), (b, d, e, g))
    names = ("first", "grouped", "point", "head")
    inputs = {name: x.detach().double().numpy() for name, x in zip(names, (a, c, d, f), strict=True)}
    return inputs, {name: x.double().numpy() for name, x in zip(names, slopes, strict=True)}


def per_place(slopes: np.ndarray) -> np.ndarray:
    return slopes.reshape(*slopes.shape[:2], -1).transpose(0, 2, 1)


def reference_inverses(
    model: Net, step: int, form: str, block: int, damping: float
) -> dict[str, list[tuple[np.ndarray, np.ndarray, float]]]:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, d = passing_by(model, *batch(step))
    model.load_state_dict(state)  # the statistics have moved on
    made = lambda rows, slopes: convolution_inverses(rows, slopes, form, block, damping)  # noqa: E731
    first = im2col(x["first"], (3, 3), 2, ((0, 1), (0, 1)), (1, 1))
    groups = [
        made(
            im2col(x["grouped"][:, 3 * i : 3 * i + 3], (3, 1), 1, ((2, 2), (0, 0)), (2, 1)),
            per_place(d["grouped"][:, 2 * i : 2 * i + 2]),
        )
        for i in range(2)
    ]
    point = im2col(x["point"], (1, 1), 2, ((0, 0), (0, 0)), (1, 1))
    return {
        "first.weight": [made(first, per_place(d["first"]))],
        "grouped.weight": groups,
        "point.weight": [made(point, per_place(d["point"]))],
        "head.weight": [dense_inverses(x["head"], d["head"], block, damping)],
    }


def precondition(gradient: np.ndarray, inverses: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    rows = len(gradient) // len(inverses)
    parts = [
        scale * g_inverse @ gradient[i * rows : (i + 1) * rows].reshape(rows, -1) @ a_inverse
        for i, (a_inverse, g_inverse, scale) in enumerate(inverses)
    ]
    return np.concatenate(parts).reshape(gradient.shape)


def reference(steps: int, form: str, block: int, nesterov: bool) -> dict[str, np.ndarray]:
    """Several steps of section 14; the passes are torch's, all the rest is not."""
    model = network()
    momenta = {name: np.zeros(parameter.shape) for name, parameter in model.named_parameters()}
    inverses: dict[str, Any] = {}
    for step in range(steps):
        damping = DAMPING * 0.87 ** ((step + 1) / 5 / 10)
        if step % 3 == 0:
            inverses = reference_inverses(model, step, form, block, damping)
        loss = F.cross_entropy(model(batch(step)[0]), batch(step)[1])
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        for (name, parameter), slope in zip(model.named_parameters(), slopes, strict=True):
            g = slope.double().numpy()
            if name in inverses:
                g = precondition(g, inverses[name])
            g = g + DECAY * parameter.detach().double().numpy()
            momenta[name] = MOMENTUM * momenta[name] + g
            update = g + MOMENTUM * momenta[name] if nesterov else momenta[name]
            with torch.no_grad():
                parameter.sub_(torch.from_numpy(RATE * update))
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("form", "block", "nesterov"),
    [("ascend", 128, False), ("ascend", 4, True), ("ascend", 0, False), ("gpu", 5, False)],
)
def test_it_is_kfac_from_explicit_patches(
    form: Literal["ascend", "gpu"], block: int, nesterov: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curvature, "MAX_PATCH_ELEMENTS", 400)  # patches of two or three images at a time
    model = network()
    optimizer = build(model, form=form, block=block, nesterov=nesterov)
    for step in range(5):  # step 3 refreshes again
        optimizer.set_epoch((step + 1) / 5)
        take_step(optimizer, model, step)
    for name, expected in reference(5, form, block, nesterov).items():
        ours = dict(model.named_parameters())[name].detach().numpy()
        np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-4, err_msg=name)


def test_one_step_is_exact_to_single_precision() -> None:
    model = network()
    before = {name: parameter.detach().double().numpy().copy() for name, parameter in model.named_parameters()}
    optimizer = build(model, block=4)
    inverses = reference_inverses(model, 0, "ascend", 4, DAMPING)
    loss = F.cross_entropy(model(batch(0)[0]), batch(0)[1])
    slopes = dict(zip(before, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    take_step(optimizer, model, 0)
    for name, parameter in model.named_parameters():
        slope = slopes[name].double().numpy()
        slope = precondition(slope, inverses[name]) if name in inverses else slope
        moved = (before[name] - parameter.detach().double().numpy()) / RATE
        np.testing.assert_allclose(moved, slope + DECAY * before[name], rtol=1e-4, atol=2e-5, err_msg=name)


def test_norms_and_biases_take_the_plain_step() -> None:
    model = network()
    optimizer = build(model, weight_decay=0.0)
    plain = {name for name, _ in model.named_parameters()} - set(optimizer.inverses)
    assert plain == {"norm.weight", "norm.bias", "point.bias", "head.bias"}


@pytest.mark.parametrize("decay", ["all", "weights"])
def test_the_decay_comes_after_the_preconditioning_and_not_into_the_loss(decay: Any) -> None:
    model = network()
    optimizer = build(model, decay=decay)
    assert float(compute_l2_loss(optimizer)) == 0
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    take_step(optimizer, model, 0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    held = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    buffers = {name: optimizer.state[parameter]["momentum_buffer"] for name, parameter in model.named_parameters()}
    velocity = {name: buffer.clone() for name, buffer in buffers.items()}
    optimizer.step()
    for name, parameter in model.named_parameters():
        decays = decay == "all" or name in optimizer.inverses
        pull = DECAY * held[name] if decays else 0.0
        torch.testing.assert_close(held[name] - parameter, RATE * (MOMENTUM * velocity[name] + pull))
    assert before.keys() == held.keys()


def test_a_loss_scale_leaves_the_factors_alone() -> None:
    first, second = network(), network()
    plain, scaled = build(first), build(second)
    for step in range(4):
        take_step(plain, first, step)
        take_step(scaled, second, step, scale=1024.0)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layers whose covariances are taken, one entry for each of the two sides."""
    seen: list[str] = []
    see = curvature.FactorRecorder.record_call

    def note(self: Any, layer: Any, *rest: Any, **named: Any) -> None:
        seen.append(layer.name)
        see(self, layer, *rest, **named)

    monkeypatch.setattr(curvature.FactorRecorder, "record_call", note)
    return seen


def test_factors_are_taken_in_refresh_steps_only(run: RunDir, taken: list[str]) -> None:
    counts: list[int] = []
    watch = [After(step, lambda now: counts.append(len(taken))) for step in range(1, 11)]
    train_recipe(replace(RECIPE, model=build_normed_network, optimizer=Thor(0.01, frequency=4)), run, *watch)
    assert counts == [2, 2, 2, 2, 4, 4, 4, 4, 6, 6]


def test_an_evaluation_records_no_factors(run: RunDir, taken: list[str]) -> None:
    train_recipe(replace(RECIPE, model=build_normed_network, optimizer=Thor(0.01, frequency=100)), run)
    assert taken == ["0.weight", "5.weight"]


def test_with_several_parts_the_factors_of_the_last_one_are_recorded(run: RunDir, taken: list[str]) -> None:
    train_recipe(replace(RECIPE, model=build_normed_network, optimizer=Thor(0.01, frequency=5), accumulate=4), run)
    assert len(taken) == 2 * 2


def test_parts_of_a_batch_do_not_change_the_size_of_the_factors(run: RunDir) -> None:
    """Eight equal images: the last quarter of them has the same curvature as all."""
    found = []
    for parts in (1, 4):
        state = build_training(replace(RECIPE, optimizer=Thor(0.01), accumulate=parts), run)
        first = next(iter(state.train_batches.epoch(0)))
        same = first._replace(images=first.images[:1].expand(8, -1, -1, -1), labels=first.labels[:1].expand(8))
        state.advance(iter([same]))
        found.append(state.optimizer.inverses)
    for name, inverses in found[0].items():
        for ours, other in zip(inverses, found[1][name], strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-3, atol=1e-3)


def test_the_weight_of_a_ranks_loss_does_not_change_the_size_of_the_factors(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank's loss weighs more where it has more images than others, and where gradients are summed."""
    found = []
    for weight in (1.0, 3.0):
        monkeypatch.setattr(SingleRank, "rank_loss_weight", weight)
        state = build_training(replace(RECIPE, optimizer=Thor(0.01)), run)
        state.advance(iter([next(iter(state.train_batches.epoch(0)))]))
        found.append(state.optimizer.inverses)
    for name, inverses in found[0].items():
        for ours, other in zip(inverses, found[1][name], strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)


def update_of_equal_images(reduce: Literal["mean", "sum"]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the update of one step on a global batch of equal images, and the inverses after it."""
    part = Thor(RATE, momentum=0.0, weight_decay=0.0)
    recipe = replace(RECIPE, optimizer=part, parallel=Parallel(reduce=reduce), steps=1)
    with tempfile.TemporaryDirectory() as folder, join_ranks("cpu", 60.0) as group:
        state = build_training(recipe, RunDir(Path(folder) / f"run{group.rank}"), group=group)
        before = copy_weights(state)
        first = next(iter(state.train_batches.epoch(0)))
        image, label = build_training(RECIPE, RunDir(Path(folder) / "image")).train_batches.epoch(0).__next__()[:2]
        count = len(first.images)
        same = first._replace(images=image[:1].expand(count, -1, -1, -1), labels=label[:1].expand(count))
        state.advance(iter([same]))
    inverses = {name: [inverse.clone() for inverse in pair] for name, pair in state.optimizer.inverses.items()}
    return {name: after - before[name] for name, after in copy_weights(state).items()}, inverses


@pytest.mark.parametrize(("reduce", "factor"), [("mean", 1.0), ("sum", 2.0)])
def test_two_ranks_take_the_step_of_one_and_summed_gradients_twice_of_it(
    reduce: Literal["mean", "sum"], factor: float
) -> None:
    """All images are equal, so that each half of the batch has the curvature of the whole."""
    (alone,) = run_on_ranks(1, update_of_equal_images, reduce)
    assert alone.error is None, alone.output
    update, inverses = alone.value
    for rank in run_on_ranks(2, update_of_equal_images, reduce):
        assert rank.error is None, rank.output
        for name, change in rank.value[0].items():
            torch.testing.assert_close(change, factor * update[name], rtol=1e-3, atol=1e-5)
        for name, pair in rank.value[1].items():
            torch.testing.assert_close(pair, inverses[name], rtol=1e-3, atol=1e-3)


def test_a_graph_run_refreshes_uncompiled_and_takes_the_same_steps(
    run: RunDir, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []

    def compile_nothing(network: nn.Module, **options: Any) -> Callable[..., Any]:
        def count_reduce(images: Tensor) -> Any:
            compiled.append(len(images))
            return network(images)

        return count_reduce

    recipe = replace(RECIPE, model=build_normed_network, optimizer=Thor(0.01, frequency=5))
    eager = train_recipe(recipe, run)
    taken.clear()
    monkeypatch.setattr(torch, "compile", compile_nothing)
    graph = train_recipe(replace(recipe, mode="graph"), run)
    assert len(taken) == 4
    assert len(compiled) == 10 - 2 + 2 * 3  # steps without refreshes, and two evaluations of three batches
    for name, tensor in copy_weights(eager).items():
        assert torch.equal(copy_weights(graph)[name], tensor)


def test_a_skipped_step_makes_up_for_its_refresh(run: RunDir) -> None:
    state = build_training(replace(RECIPE, optimizer=Thor(0.01), precision=Precision("fp16", loss_scale=2.0**40)), run)
    batches = iter(state.train_batches.epoch(0))
    state.advance(batches)
    assert state.scale.skipped == 1
    assert state.optimizer.is_refresh_due
    state.scale.value = 1.0
    state.advance(batches)
    assert not state.optimizer.is_refresh_due
    assert all(inverse.isfinite().all() for pair in state.optimizer.inverses.values() for inverse in pair)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "O2", "O3"])
@pytest.mark.parametrize("traced", [False, True])
def test_an_interrupted_run_ends_with_the_same_bytes(
    tmp_path: Path, precision: Any, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, _ = devices.pick(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))
    monkeypatch.setattr(room, "list_native_dtypes", lambda: ("bf16",))
    part = Thor(0.01, frequency=3, trace_rule=traced, trace_renew=0.5, trace_freeze=0.05)
    recipe = replace(RECIPE, model=build_normed_network, optimizer=part, precision=Precision(precision, loss_scale=1.0))
    straight = train_recipe(recipe, RunDir(tmp_path / "straight"))
    broken = RunDir(tmp_path / "broken")
    train_recipe(replace(recipe, steps=4), broken, After(4, lambda now: now.save()))
    resumed = build_training(recipe, broken)
    resumed.restore(SavedCheckpoint(broken.checkpoints / "step-4"))
    with resumed.train_batches, resumed.validation:
        resumed.fit()
    straight.computation.gather_statistics()
    resumed.computation.gather_statistics()
    for name, tensor in copy_weights(straight).items():
        assert torch.equal(copy_weights(resumed)[name], tensor)
    assert straight.optimizer.steps == resumed.optimizer.steps == 10
    for name, inverses in straight.optimizer.inverses.items():
        assert all(map(torch.equal, inverses, resumed.optimizer.inverses[name]))
        assert not torch.equal(inverses[0][0, 0], torch.eye(inverses[0].shape[-1]))


def test_its_state_is_tensors_and_plain_values() -> None:
    model = network()
    optimizer = build(model, trace_rule=True)
    take_step(optimizer, model, 0)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = network()
    resumed = build(other, trace_rule=True)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    other.load_state_dict(model.state_dict())
    for step in range(1, 5):
        take_step(optimizer, model, step)
        take_step(resumed, other, step)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_the_state_of_another_optimizer_is_refused() -> None:
    model = network()
    sgd = build_optimizer(replace(RECIPE, optimizer=Sgd()), model)
    with pytest.raises(KeyError, match="thor"):
        build(model).load_state_dict(sgd.state_dict())


def test_frozen_weights_have_no_factors_and_do_not_change(taken: list[str]) -> None:
    model = network()
    model.first.weight.requires_grad_(False)
    before = model.first.weight.detach().clone()
    optimizer = build(model)
    images, labels = batch(0)
    with optimizer.record_factors(model, 1.0):
        F.cross_entropy(model(images), labels).backward()
    optimizer.step()
    assert "first.weight" not in taken
    assert torch.equal(model.first.weight, before)


def test_a_layer_that_is_not_used_is_left_alone() -> None:
    model = network()
    twin = nn.Linear(5, 4)
    model.spare = twin  # of the head's shape, so that both are worked on together
    before = twin.weight.detach().clone()
    optimizer = build(model)
    images, labels = batch(0)
    with optimizer.record_factors(model, 1.0):
        F.cross_entropy(model(images), labels).backward()
    optimizer.step()
    assert twin.weight.grad is None
    assert torch.equal(twin.weight, before)
    assert torch.equal(optimizer.inverses["spare.weight"][0][0, 0], torch.eye(5))


def test_a_weight_that_is_used_twice_has_the_mean_of_both_factors() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model, x = nn.Sequential(first, second), torch.randn(8, 4)
    optimizer = build(model, damping_init=0.04)
    assert list(optimizer.inverses) == ["0.weight"]
    hidden = first(x).detach()
    with optimizer.record_factors(model, 1.0):
        F.cross_entropy(model(x), torch.arange(8) % 4).backward()
    optimizer.step()
    expected = torch.linalg.inv((x.T @ x + hidden.T @ hidden) / 16 + 0.2 * torch.eye(4))
    torch.testing.assert_close(optimizer.inverses["0.weight"][0][0, 0], expected, rtol=1e-3, atol=1e-4)


def test_the_damping_falls_by_its_schedule(run: RunDir) -> None:
    assert compute_damping(Thor(damping_init=0.03, damping_decay=0.87), 10.0) == pytest.approx(0.03 * 0.87)
    state = build_training(replace(RECIPE, optimizer=Thor(damping_init=0.02, damping_decay=0.5)), run)
    seen: list[float] = []
    state.callbacks.append(After(3, lambda now: seen.append(now.optimizer.damping)))
    with state.train_batches, state.validation:
        state.fit()
    assert seen == [pytest.approx(0.02 * 0.5 ** (3 / 5 / 10))]  # the third step of five in an epoch


# The trace rule.


def refresh_once(optimizer: ThorOptimizer, model: nn.Module, factor: float) -> dict[str, Tensor]:
    """One refresh on the first batch, its images times a factor; what the inverses of A are then."""
    images, labels = batch(0)
    optimizer.steps = 0
    with optimizer.record_factors(model, 1.0):
        loss = F.cross_entropy(model(images * factor), labels)
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    optimizer.zero_grad()
    return {name: pair[0].clone() for name, pair in optimizer.inverses.items()}


def test_the_trace_rule_renews_keeps_and_freezes(taken: list[str]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(300, 4, bias=False))
    torch.manual_seed(0)
    optimizer = build(model, trace_rule=True, trace_renew=0.5, trace_freeze=0.001, weight_decay=0.0)
    first = refresh_once(optimizer, model, 1.0)["1.weight"]
    assert not torch.equal(first[0, 0], torch.eye(128))
    kept = refresh_once(optimizer, model, 1.1)["1.weight"]  # traces change by a fifth or so
    assert torch.equal(kept, first)
    renewed = refresh_once(optimizer, model, 2.0)["1.weight"]
    assert not torch.equal(renewed, first)
    taken.clear()
    refresh_once(optimizer, model, 2.0)  # no change at all: frozen from now on
    assert taken == ["1.weight"]
    last = refresh_once(optimizer, model, 9.0)["1.weight"]
    assert taken == ["1.weight"]
    assert torch.equal(last, renewed)


# Several ranks.


SPLITS: tuple[tuple[int, ...], ...] = ((), (0, 3))


def inverses_of(number: int, split: tuple[int, ...]) -> dict[str, list[np.ndarray]]:
    """Return the inverses that a rank holds after one step on its own batch."""
    model = network()
    optimizer = build(model, split_indices=split)
    take_step(optimizer, model, step=100 + number)
    return {name: [inverse.numpy() for inverse in pair] for name, pair in optimizer.inverses.items()}


def of_a_rank() -> tuple[list[dict[str, list[np.ndarray]]], list[int]]:
    distributed.init_process_group("gloo")
    sent: list[int] = []
    reduce = distributed.all_reduce

    def count_reduce(message: Tensor) -> None:
        sent.append(message.numel())
        reduce(message)

    distributed.all_reduce = count_reduce
    inverses = [inverses_of(distributed.get_rank(), split) for split in SPLITS]
    distributed.barrier()
    distributed.destroy_process_group()
    return inverses, sent


def test_ranks_average_their_inverses_in_buckets() -> None:
    found = run_on_ranks(2, of_a_rank)
    assert [factor.error for factor in found] == [None, None], [factor.output for factor in found]
    alone = [inverses_of(number, ()) for number in range(2)]
    sizes = [sum(inverse.size for inverse in pair) for pair in alone[0].values()]  # four layers
    for inverses, sent in (factor.value for factor in found):
        # Two halves, then what was asked for: the first layer, and the rest.
        assert sent == [sum(sizes[:2]), sum(sizes[2:]), sizes[0], sum(sizes[1:])]
        for averaged in inverses:
            for name, sides in averaged.items():
                for side, first, second in zip(sides, alone[0][name], alone[1][name], strict=True):
                    np.testing.assert_allclose(side, (first + second) / 2, rtol=1e-5, atol=1e-6)


# What it is for.


def descent(build_own: Callable[[nn.Module], torch.optim.Optimizer]) -> list[float]:
    """A dense layer on inputs whose directions differ a hundredfold in size."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 20, generator=generator) * torch.logspace(0, -2, 20)
    labels = (x / torch.logspace(0, -2, 20) @ torch.randn(20, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    model = nn.Linear(20, 3)
    optimizer, losses = build_own(model), []
    for _ in range(60):
        if isinstance(optimizer, ThorOptimizer) and optimizer.is_refresh_due:
            with optimizer.record_factors(model, 1.0):
                loss = F.cross_entropy(model(x), labels)
        else:
            loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_it_descends_faster_than_sgd_at_any_rate_on_an_ill_conditioned_problem() -> None:
    part = Thor(0.1, 0.9, weight_decay=0.0, frequency=10, damping_init=1e-6)
    thor = descent(lambda model: build_optimizer(replace(RECIPE, optimizer=part), model))
    rates = [10.0**power for power in (-2, -1, 0, 1, 2)]
    sgd = [descent(lambda model, r=r: torch.optim.SGD(model.parameters(), r, momentum=0.9))[-1] for r in rates]
    assert thor[-1] < 0.2 * min(sgd)


def test_a_small_network_learns(run: RunDir) -> None:
    done = train_recipe(
        replace(RECIPE, model=build_normed_network, optimizer=Thor(0.02, weight_decay=0.0), epochs=8), run
    )
    assert done.score is not None
    assert done.score.top1 > 0.7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frequency": 0}, r"optimizer.frequency is 0; it must be 1 or more"),
        ({"damping_init": 0.0}, r"optimizer.damping_init is 0.0; it must be above 0"),
        ({"block": -1}, r"optimizer.block is -1"),
        ({"split_indices": (5, 3)}, r"optimizer.split_indices is \(5, 3\)"),
        ({"trace_freeze": 0.5}, r"optimizer.trace_freeze is 0.5; it must be from 0 to optimizer.trace_renew"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Thor(**fields)
