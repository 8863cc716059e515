"""Meaning of each precision, the fp32 weights, and the effect of an overflow."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from training.tiny_runs import (
    PER_EPOCH,
    RECIPE,
    Recorder,
    build_normed_network,
    build_plain_network,
    build_training,
    copy_weights,
    train_recipe,
)
from viaduct import devices
from viaduct.errors import BadValue
from viaduct.recipes import Precision, Recipe
from viaduct.training.loop import Training
from viaduct.training.precision import (
    Computation,
    LossScale,
    PrecisionPlan,
    has_finite_gradients,
    plan_precision,
    unscale_gradients,
)
from viaduct.training.rundir import RunDir

CPU = torch.device("cpu")


def device(*able: str, software: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(NAME="card", list_native_dtypes=lambda: able, list_emulated_dtypes=lambda: software)


@pytest.mark.parametrize("word", ["auto", "fp32", "O0"])
def test_nothing_is_reduced_where_the_hardware_cannot_or_nobody_asked(word: str) -> None:
    assert plan_precision(Precision(word), device()) == PrecisionPlan("fp32", False, False)


def test_auto_takes_what_the_hardware_computes_in_and_nothing_that_is_done_in_software() -> None:
    assert plan_precision(Precision("auto"), device("fp16")).compute == "fp16"
    assert plan_precision(Precision("auto"), device()).compute == "fp32"
    assert plan_precision(Precision("auto"), device(software=("bf16", "fp16"))).compute == "fp32"
    assert plan_precision(Precision("auto"), device("fp16", "bf16")).compute == "bf16"


@pytest.mark.parametrize(
    ("word", "able", "expected"),
    [
        ("O0", ("bf16", "fp16"), PrecisionPlan("fp32", False, False)),
        ("O1", ("bf16", "fp16"), PrecisionPlan("fp16", False, False)),
        ("O1", ("bf16",), PrecisionPlan("bf16", False, False)),
        ("O2", ("bf16", "fp16"), PrecisionPlan("fp16", True, False)),
        ("O2", ("bf16",), PrecisionPlan("bf16", True, False)),
        ("O3", ("bf16", "fp16"), PrecisionPlan("fp16", True, True)),
        ("bf16", ("bf16", "fp16"), PrecisionPlan("bf16", False, False)),
        ("fp16", ("bf16", "fp16"), PrecisionPlan("fp16", False, False)),
        ("fp16", (), PrecisionPlan("fp16", False, False)),
    ],
)
def test_the_levels_mean_what_they_mean_elsewhere(word: str, able: tuple[str, ...], expected: PrecisionPlan) -> None:
    assert plan_precision(Precision(word), device(*able)) == expected


@pytest.mark.parametrize("word", ["O1", "O2", "O3"])
def test_a_level_is_refused_where_there_is_nothing_to_reduce_to(word: str) -> None:
    with pytest.raises(BadValue, match=r"card computes in neither fp16 nor bf16.\n  Use --precision fp32"):
        plan_precision(Precision(word), device())


@pytest.mark.parametrize("word", ["auto", "fp32", "O0", "bf16", "fp16", "O1", "O2", "O3"])
@pytest.mark.parametrize("instructions", ["0", "1"])
def test_every_precision_trains_on_every_processor(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, instructions: str
) -> None:
    monkeypatch.setenv("VIADUCT_CPU_BF16", instructions)
    fast = {"fp32", "bf16"} if instructions == "1" else {"fp32"}
    expected = {"fp32": "fp32", "O0": "fp32", "fp16": "fp16", "auto": "bf16" if "bf16" in fast else "fp32"}
    done, seen = losses(replace(RECIPE, model=build_normed_network, precision=Precision(word), epochs=1), run)
    assert done.precision_plan.compute == expected.get(word, "bf16")
    assert done.precision_plan.cast_network == (word in ("O2", "O3"))
    assert all(map(math.isfinite, seen))
    output = capsys.readouterr().err.count("in software, usually slower than fp32")
    assert output == (0 if done.precision_plan.compute in fast else 1)


@pytest.mark.parametrize(("word", "keep"), [("O2", False), ("O3", True), ("O2", True), ("O3", False)])
def test_keep_batchnorm_fp32_overrules_the_level(word: str, keep: bool) -> None:
    plan = plan_precision(Precision(word, keep_batchnorm_fp32=keep), device("fp16"))
    assert plan == PrecisionPlan("fp16", True, cast_norms=not keep)


def computation(plan: PrecisionPlan) -> Computation:
    torch.manual_seed(1)
    return Computation(build_normed_network(4), plan, CPU)


def dtypes(module: nn.Module) -> dict[str, torch.dtype]:
    return {name: tensor.dtype for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


NORMS = ("1.weight", "1.bias", "1.running_mean", "1.running_var")
OTHERS = ("0.weight", "5.weight", "5.bias")


@pytest.mark.parametrize("cast_norms", [False, True])
def test_the_master_weights_stay_in_fp32_when_the_network_is_cast(cast_norms: bool) -> None:
    made = computation(PrecisionPlan("bf16", True, cast_norms))
    norm = torch.bfloat16 if cast_norms else torch.float32
    assert set(dtypes(made.master).values()) == {torch.float32}
    assert dtypes(made.network) == {**dict.fromkeys(OTHERS, torch.bfloat16), **dict.fromkeys(NORMS, norm)}


def test_casting_at_use_casts_no_weight() -> None:
    made = computation(PrecisionPlan("bf16", False, False))
    assert made.network is made.master
    assert set(dtypes(made.network).values()) == {torch.float32}


@pytest.mark.parametrize("cast", [False, True])
def test_the_logits_leave_in_fp32_although_they_were_computed_in_bf16(cast: bool) -> None:
    made = computation(PrecisionPlan("bf16", cast, cast))
    made.train(False)
    images = torch.randn(5, 3, 16, 16)
    logits, exact = made(images), made.master(images)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.bfloat16().float())
    assert not torch.equal(logits, exact)
    torch.testing.assert_close(logits, exact, rtol=0.05, atol=0.05)


def test_fp32_computes_exactly_what_the_network_does() -> None:
    made = computation(PrecisionPlan("fp32", False, False))
    made.train(False)
    images = torch.randn(5, 3, 16, 16)
    assert torch.equal(made(images), made.master(images))


def test_gradients_come_to_the_masters_and_new_weights_go_back() -> None:
    made = computation(PrecisionPlan("bf16", True, True))
    made(torch.randn(4, 3, 16, 16)).square().sum().backward()
    made.gather_gradients()
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in made.master.parameters()
    )
    assert all(parameter.grad is None for parameter in made.network.parameters())
    with torch.no_grad():
        made.master[5].weight.fill_(0.3)
    made.publish_weights()
    assert torch.equal(made.network[5].weight, torch.full((4, 6), 0.3, dtype=torch.bfloat16))


def test_statistics_travel_both_ways() -> None:
    made = computation(PrecisionPlan("bf16", True, True))
    made(2 + torch.randn(4, 3, 16, 16))
    assert not made.master[1].running_mean.any()
    made.gather_statistics()
    assert torch.equal(made.master[1].running_mean, made.network[1].running_mean.float())
    assert made.master[1].num_batches_tracked == 1
    made.master[1].running_var.fill_(0.5)
    made.publish_statistics()
    assert torch.equal(made.network[1].running_var, torch.full((6,), 0.5, dtype=torch.bfloat16))


def test_training_and_evaluation_reach_both_networks() -> None:
    made = computation(PrecisionPlan("bf16", True, True))
    made.train(False)
    assert not made.master.training
    assert not made.network.training
    made.train(True)
    assert made.master.training
    assert made.network.training


AMOEBANET = Precision("fp16", loss_scale="dynamic", scale_start=2.0**32, scale_grow_every=1000, scale_shrink_after=2)


def update_scale(scale: LossScale, finite: bool, times: int = 1) -> float:
    for _ in range(times):
        scale.update(finite)
    return scale.value


def test_a_dynamic_scale_does_not_move_before_its_time() -> None:
    scale = LossScale(AMOEBANET, "fp16")
    assert scale.value == 2.0**32
    assert update_scale(scale, True, 999) == 2.0**32
    assert update_scale(scale, False) == 2.0**32
    assert update_scale(scale, True, 999) == 2.0**32  # an overflow starts the count again


def test_a_dynamic_scale_doubles_after_so_many_good_steps() -> None:
    scale = LossScale(AMOEBANET, "fp16")
    assert update_scale(scale, True, 1000) == 2.0**33
    assert update_scale(scale, True, 999) == 2.0**33
    assert update_scale(scale, True) == 2.0**34


def test_a_dynamic_scale_halves_after_so_many_overflows() -> None:
    scale = LossScale(AMOEBANET, "fp16")
    assert update_scale(scale, False, 2) == 2.0**31
    assert update_scale(scale, True) == 2.0**31
    assert update_scale(scale, False) == 2.0**31
    assert update_scale(scale, False) == 2.0**30
    assert scale.skipped == 4


def test_overflows_before_a_doubling_are_forgotten_as_in_tensorflow() -> None:
    scale = LossScale(AMOEBANET, "fp16")
    update_scale(scale, False)
    assert update_scale(scale, True, 1000) == 2.0**33
    assert update_scale(scale, False) == 2.0**33


def test_a_dynamic_scale_never_falls_below_one() -> None:
    scale = LossScale(replace(AMOEBANET, scale_start=4.0), "fp16")
    assert update_scale(scale, False, 100) == 1.0
    assert scale.is_exhausted


def test_torchs_rule_is_the_default_for_fp16() -> None:
    scale = LossScale(Precision("fp16"), "fp16")
    assert (scale.is_dynamic, scale.value) == (True, 65536.0)
    assert update_scale(scale, False) == 32768.0
    assert update_scale(scale, True, 2000) == 65536.0


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_nothing_is_scaled_or_skipped_outside_fp16(compute: str) -> None:
    scale = LossScale(Precision(compute), compute)
    assert (scale.value, scale.is_dynamic, scale.skips_overflows) == (1.0, False, False)


def test_a_fixed_scale_may_update_with_overflowed_gradients(run: RunDir) -> None:
    """The book's FixedLossScaleManager(…, drop_overflow_update=False)."""
    fixed = Precision("fp16", loss_scale=2.0**40, drop_overflow=False)
    state = build_training(replace(RECIPE, precision=fixed), run)
    assert not state.scale.skips_overflows
    state.run_step(next(state.iterate_batches()))
    assert state.scale.skipped == 0
    assert not all(bool(parameter.isfinite().all()) for parameter in state.model.parameters())


@pytest.mark.parametrize("scale", ["dynamic", "auto"])
def test_a_dynamic_scale_must_drop_what_overflows(scale: Any) -> None:
    with pytest.raises(BadValue, match="drop_overflow is False; it must be true with a dynamic loss scale"):
        Precision("fp16", loss_scale=scale, drop_overflow=False)


def test_a_fixed_scale_stays_and_still_counts_overflows() -> None:
    scale = LossScale(Precision("fp16", loss_scale=512.0), "fp16")
    assert update_scale(scale, True, 5000) == update_scale(scale, False, 10) == 512.0
    assert (scale.skips_overflows, scale.skipped, scale.is_exhausted) == (True, 10, False)
    update_scale(scale, False, 40)
    assert scale.is_exhausted
    update_scale(scale, True)
    assert not scale.is_exhausted


def test_a_scale_continues_from_its_state() -> None:
    first, second = LossScale(AMOEBANET, "fp16"), LossScale(AMOEBANET, "fp16")
    update_scale(first, True, 1500)
    update_scale(first, False)
    second.restore(first.get_state())
    assert second.get_state() == first.get_state()
    assert update_scale(first, False) == update_scale(second, False) == 2.0**32
    assert second.skipped == 2


def test_unscaling_takes_the_scale_out_and_passes_over_missing_gradients() -> None:
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
    first.grad = torch.tensor([8.0, 16.0, -4.0])
    unscale_gradients([first, second], 4.0)
    assert first.grad.tolist() == [2.0, 4.0, -1.0]
    assert second.grad is None
    unscale_gradients([second], 4.0)


@pytest.mark.parametrize(("worst", "finite"), [(3e38, True), (float("inf"), False), (float("nan"), False)])
def test_one_bad_element_is_found_and_a_large_one_is_not_bad(worst: float, finite: bool) -> None:
    parameters = [nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))]
    parameters[0].grad, parameters[1].grad = torch.full((4,), 3e38), torch.tensor([0.0, worst, 1.0, 0.0])
    assert has_finite_gradients(parameters) is finite


def test_an_overflow_leaves_weights_and_momentum_as_they_were(run: RunDir) -> None:
    fixed = replace(RECIPE, precision=Precision("fp16", loss_scale=2.0**40))
    state = build_training(fixed, run)
    before = copy_weights(state)
    state.advance(iter(state.train_batches.epoch(0)))
    assert (state.step, state.scale.skipped, state.scale.value) == (1, 1, 2.0**40)
    assert all(torch.equal(tensor, before[name]) for name, tensor in copy_weights(state).items())
    assert not state.optimizer.state


def test_a_dynamic_scale_finds_its_way_down_and_the_steps_after_it_count(run: RunDir) -> None:
    dynamic = replace(RECIPE, precision=replace(AMOEBANET, scale_start=2.0**40, scale_shrink_after=1), epochs=8)
    recorder = Recorder()
    done = train_recipe(dynamic, run, recorder)
    assert 0 < done.scale.skipped < done.steps
    assert done.scale.value == 2.0 ** (40 - done.scale.skipped)
    assert recorder.logs[-1].skipped == done.scale.skipped
    assert recorder.logs[-1].loss < recorder.logs[0].loss


def test_one_step_changes_the_master_weights_by_less_than_bf16_can_hold(run: RunDir, able: Callable[..., None]) -> None:
    able("bf16")
    state = build_training(replace(RECIPE, model=build_normed_network, precision=Precision("O3")), run)
    with torch.no_grad():
        state.model[5].weight.fill_(1.0)
    state.computation.publish_weights()
    before = copy_weights(state)
    state.optimizer.param_groups[0]["lr"] = state.progress.initial_rates[0] = 1e-4
    state.advance(iter(state.train_batches.epoch(0)))
    dense = state.model[5].weight
    assert dense.dtype == torch.float32
    assert not torch.equal(dense, before["5.weight"])
    assert torch.equal(dense.bfloat16(), before["5.weight"].bfloat16())


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`able("fp16")` makes the device say that it computes in that, and in nothing else."""
    room, _ = devices.pick(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))
    return lambda *words: monkeypatch.setattr(room, "list_native_dtypes", lambda: words)


def losses(recipe: Recipe, run: RunDir) -> tuple[Training, list[float]]:
    recorder = Recorder()
    done = train_recipe(recipe, run, recorder)
    return done, [record.loss for record in recorder.logs]


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
@pytest.mark.parametrize("word", ["bf16", "fp16"])
def test_a_network_learns_at_every_level(run: RunDir, able: Callable[..., None], level: str, word: str) -> None:
    able(word)
    done, seen = losses(replace(RECIPE, model=build_normed_network, precision=Precision(level), epochs=8), run)
    assert (done.precision_plan.compute, done.precision_plan.cast_network) == (word, level != "O1")
    assert sum(seen[-PER_EPOCH:]) < 0.6 * sum(seen[:PER_EPOCH])
    assert done.score is not None
    assert done.score.top1 > 0.7


def test_bf16_computes_something_else_than_fp32_and_learns_as_well(run: RunDir) -> None:
    exact, expected = losses(replace(RECIPE, model=build_plain_network, epochs=4), run)
    rounded, seen = losses(replace(RECIPE, model=build_plain_network, epochs=4, precision=Precision("bf16")), run)
    assert not torch.equal(copy_weights(exact)["0.weight"], copy_weights(rounded)["0.weight"])
    assert seen == pytest.approx(expected, rel=0.1, abs=0.05)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_recipe_says_whether_the_card_may_round_to_tf32(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    answers: list[bool] = []
    monkeypatch.setattr(build_training(RECIPE, run).device, "set_tf32", answers.append)
    build_training(replace(RECIPE, precision=Precision("fp32", tf32=allowed)), run)
    assert answers == [allowed]
