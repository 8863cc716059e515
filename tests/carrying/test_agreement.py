"""Values agree if they are equal, or differ by at most a multiple of what moving the weights by one unit changes."""

from __future__ import annotations

import math

import numpy as np

from carrying.sample_observations import make_observation
from viaduct.carrying.agreement import (
    NOISE_FACTOR,
    NOTHING_MOVED,
    judge,
    needs_perturbed_run,
    pair_observations,
    set_tolerances,
)
from viaduct.carrying.observations import Observations, Rank


def test_a_missing_tensor_another_shape_or_another_counter_is_never_rounding() -> None:
    good = make_observation()
    for change in (
        {"weights": {"w": np.ones(3, np.float32)}},
        {"weights": {"w": np.ones(4, np.float32), "steps": np.array(9), "extra": np.ones(1, np.float32)}},
        {"weights": {"w": np.ones(5, np.float32), "steps": np.array(8)}},
        {"weights": {"w": np.ones(4, np.float32), "steps": np.array(9)}},
        {"losses": [[2.0], [1.0]]},
        {"gradients": {}},
    ):
        pairs = pair_observations(good, make_observation(**change))
        assert judge(pairs, pair_observations(good, make_observation(shift=1e-3))).verdict == "differ", change


def test_a_value_that_is_not_finite_agrees_only_with_itself() -> None:
    lost = {"gradients": {"w": np.array([1, np.nan, 3, 4], np.float32)}}
    assert judge(pair_observations(make_observation(**lost), make_observation(**lost))).verdict == "same"
    assert judge(pair_observations(make_observation(), make_observation(**lost))).verdict == "differ"
    assert judge(pair_observations(make_observation(**lost), make_observation())).verdict == "differ"


def test_tiny_values_are_not_equal_because_they_are_tiny() -> None:
    tiny = make_observation(gradients={"w": np.full(4, 1e-17, np.float32)})
    for value in (5.0, 2e-17):
        other = make_observation(gradients={"w": np.full(4, value, np.float32)})
        assert judge(pair_observations(tiny, other)).verdict == "differ"


def test_half_precision_does_not_bring_its_own_tolerance() -> None:
    values = np.linspace(1, 2, 7)

    def observe(dtype: type) -> Observations:
        return make_observation(weights={"w": values.astype(dtype)})

    assert judge(pair_observations(observe(np.float32), observe(np.float16))).verdict == "differ"
    assert judge(pair_observations(observe(np.float16), observe(np.float32))).verdict == "rounding"


def test_a_counter_of_another_type_is_equal_only_if_its_value_is() -> None:
    def judge_counters(left: np.ndarray, right: np.ndarray) -> str:
        observations = (make_observation(weights={"steps": steps}) for steps in (left, right))
        return judge(pair_observations(*observations)).verdict

    counter = np.array([2**53 + 1])
    assert judge_counters(counter, counter.astype(np.uint64)) == "same"
    assert judge_counters(counter, counter.astype(np.float64)) == "differ"
    assert judge_counters(counter, np.array([2**53], np.uint64)) == "differ"
    assert judge_counters(np.array([], np.int64), np.array([], np.float64)) == "same"
    assert judge_counters(np.array([1]), np.array([1j])) == "differ"


def test_without_a_loss_nothing_is_proved() -> None:
    assert (
        judge(pair_observations(make_observation(losses=[[], [], []]), make_observation(losses=[[], [], []]))).verdict
        == "unsure"
    )


def test_an_original_that_does_not_repeat_itself_proves_nothing() -> None:
    found = judge(
        pair_observations(make_observation(), make_observation(shift=1e-4)),
        pair_observations(make_observation(), make_observation(shift=0.1)),
    )
    assert found.verdict == "unsure"
    assert "is probably not deterministic" in found.remarks[0]


def test_equal_values_and_large_differences_need_no_perturbed_run() -> None:
    assert not needs_perturbed_run(pair_observations(make_observation(), make_observation()))
    assert not needs_perturbed_run(
        pair_observations(make_observation(), make_observation(losses=[[3.0], [1.0], [0.5]]))
    )
    assert needs_perturbed_run(pair_observations(make_observation(), make_observation(shift=1e-6)))


def test_beside_a_missing_tensor_a_difference_may_still_be_rounding() -> None:
    extra = {"w": np.ones(4, np.float32), "steps": np.array(8), "extra": np.ones(1, np.float32)}
    assert not needs_perturbed_run(pair_observations(make_observation(), make_observation(weights=extra)))
    pairs = pair_observations(make_observation(), make_observation(shift=1e-6, weights=extra))
    assert needs_perturbed_run(pairs)
    for shift in (1e-6, 0.5):  # the second is too far off to be rounding
        found = judge(pairs, pair_observations(make_observation(), make_observation(shift=shift)))
        assert found.verdict == "differ"
        assert [pair.name for pair in found.bad] == ["extra"]


def test_the_tolerance_is_a_multiple_of_the_perturbed_runs_difference() -> None:
    noise = pair_observations(make_observation(), make_observation(shift=1e-6))
    within = judge(pair_observations(make_observation(), make_observation(shift=3e-6)), noise)
    beyond = judge(pair_observations(make_observation(), make_observation(shift=1e-6 * NOISE_FACTOR * 4)), noise)
    assert (within.verdict, beyond.verdict) == ("rounding", "differ")
    assert (
        judge(pair_observations(make_observation(), make_observation(shift=3e-5))).verdict == "differ"
    )  # no perturbed run: a few units only


def test_the_median_noise_is_that_of_the_tensors_alone() -> None:
    def observe(**noise: float) -> Observations:
        return make_observation(gradients={name: np.full(4, 1 + x, np.float32) for name, x in noise.items()})

    pairs = pair_observations(observe(a=0, b=0, c=0), observe(a=0, b=0, c=0))
    judged = set_tolerances(pairs, pair_observations(observe(a=0, b=0, c=0), observe(a=0.125, b=0.25, c=0.5)))
    assert {pair.name: pair.noise for pair in judged if pair.kind == "gradient"} == {"a": 0.25, "b": 0.25, "c": 0.5}


def test_no_loss_is_judged_after_the_perturbed_run_got_nan() -> None:
    noise = pair_observations(make_observation(), make_observation(losses=[[2.0], [math.nan], [0.5]]))
    found = judge(pair_observations(make_observation(), make_observation(losses=[[2.0], [1.1], [0.6]])), noise)
    assert [pair.is_informative for pair in found.pairs_of("loss")] == [True, False, False]
    assert found.verdict == "rounding"
    assert found.remarks[0].startswith("From step 1 on")


def test_a_weight_that_the_perturbed_run_loses_is_not_judged() -> None:
    lost = {"weights": {"w": np.full(4, np.nan, np.float32), "steps": np.array(8)}}
    noise = pair_observations(make_observation(), make_observation(**lost))
    other = make_observation(weights={"w": np.full(4, 1.1, np.float32), "steps": np.array(8)})
    judged = judge(pair_observations(make_observation(), other), noise)
    assert judged.verdict == "rounding"
    assert [pair.name for pair in judged.informative_pairs("weight")] == ["steps"]


def test_a_perturbed_run_that_changed_nothing_is_named() -> None:
    pairs = pair_observations(make_observation(), make_observation(shift=1e-4))
    equal = pair_observations(make_observation(), make_observation())
    assert judge(pairs, equal).remarks == [NOTHING_MOVED]
    assert judge(pairs, pair_observations(make_observation(), make_observation(shift=1e-6))).remarks == []


def test_a_loss_of_zero_keeps_the_noise_of_the_losses_before_it() -> None:
    zero = make_observation(losses=[[2.0], [0.0], [0.5]])
    noise = pair_observations(zero, make_observation(losses=[[2.0 + 2e-6], [1e-9], [0.5]]))
    judged = set_tolerances(pair_observations(zero, zero), noise)
    assert [round(pair.noise, 9) for pair in judged if pair.kind == "loss"] == [1e-6, 1e-6, 1e-6]


def test_a_tensor_that_is_mostly_rounding_does_not_excuse_the_others() -> None:
    wild = {"gradients": {"w": np.ones(4, np.float32), "b": np.array([1e-9, 0], np.float32)}}
    shaken = {"gradients": {"w": np.ones(4, np.float32), "b": np.array([-1e-9, 1e-9], np.float32)}}
    wrong = {"gradients": {"w": np.full(4, 1.01, np.float32), "b": np.array([3e-9, 0], np.float32)}}
    noise = pair_observations(make_observation(**wild), make_observation(**shaken))
    assert judge(pair_observations(make_observation(**wild), make_observation(**shaken)), noise).verdict == "rounding"
    found = judge(pair_observations(make_observation(**wild), make_observation(**wrong)), noise)
    assert found.verdict == "differ"
    assert [pair.name for pair in found.bad] == ["w"]


def test_the_first_difference_is_the_earliest_in_training() -> None:
    other = make_observation(
        losses=[[2.0], [1.0], [0.6]], weights={"w": np.full(4, 2, np.float32), "steps": np.array(9)}
    )
    first = judge(
        pair_observations(make_observation(weights={"w": np.ones(4, np.float32), "steps": np.array(9)}), other)
    ).first_bad
    assert first is not None
    assert (first.kind, first.step) == ("loss", 2)
    assert math.isclose(first.right, 0.6)


def test_ranks_are_paired_by_their_numbers() -> None:
    second = Rank(1, [[1.0]], weights={"w": np.ones(2)})
    pairs = pair_observations(Observations([Rank(0, [[2.0]]), second]), Observations([second]))
    assert [(pair.rank, pair.same) for pair in pairs] == [(0, False), (1, True), (1, True)]
