from dataclasses import replace

from profiling.advice.made_profiles import FixedTimes, advise, make_profile, make_steps, multiply
from viaduct.profiling.record import Advice, Kernel, Operator, Profile

UPDATE = Operator(
    "aten::addcdiv_", 2, 900.0, 900.0, phase="update", shapes="[512, 1024], [512, 1024]", location="t.py:9"
)
KERNELS = [Kernel("aten::addcdiv_", "optimizer", 2, 1800.0), Kernel("aten::mm", "matrix product", 1, 6500.0)]
STEPS = make_steps(compute_us=6900.0, update_us=3000.0)


def find(profile: Profile, microbenchmarks: FixedTimes | None = None) -> Advice | None:
    return next((advice for advice in advise(profile, microbenchmarks) if advice.name == "optimizer"), None)


def test_nothing_is_advised_without_a_measurement() -> None:
    profile = make_profile(STEPS, operators=[multiply(6500.0), UPDATE], kernels=KERNELS)
    assert find(profile) is None
    assert find(profile, FixedTimes(None)) is None


def test_a_fused_update_that_is_no_faster_is_not_advised() -> None:
    assert (
        find(
            make_profile(STEPS, operators=[multiply(6500.0), UPDATE], kernels=KERNELS),
            FixedTimes((100.0, 95.0)),
        )
        is None
    )


def test_sgd_without_momentum_has_nothing_to_fuse() -> None:
    plain = replace(UPDATE, name="aten::add_")
    microbenchmarks = FixedTimes((300.0, 100.0))
    assert find(make_profile(STEPS, operators=[multiply(6500.0), plain], kernels=KERNELS), microbenchmarks) is None
    assert microbenchmarks.asked == []


def test_an_update_that_other_work_made_long_promises_no_more_than_was_measured() -> None:
    steps = make_steps(compute_us=6900.0, update_us=200_000.0)
    kernels = [Kernel("aten::addcdiv_", "optimizer", 2, 190_000.0)]
    operators = [multiply(6500.0), UPDATE]
    assert find(make_profile(steps, operators=operators, kernels=kernels), FixedTimes((7450.0, 3190.0))) is None


def test_the_gain_is_at_most_the_optimizers_time_in_the_step() -> None:
    profile = make_profile(STEPS, operators=[multiply(6500.0), UPDATE], kernels=KERNELS)
    advice = find(profile, FixedTimes((9000.0, 1000.0)))
    assert advice is not None
    assert advice.gain_us == 1800.0


def test_the_gain_is_the_difference_that_was_measured() -> None:
    microbenchmarks = FixedTimes((1500.0, 300.0))
    advice = find(make_profile(STEPS, operators=[multiply(6500.0), UPDATE], kernels=KERNELS), microbenchmarks)
    assert advice is not None
    assert microbenchmarks.asked == [("Adam", [512 * 1024, 512 * 1024])]
    assert advice.gain_us == 1200.0
    assert "1.5 ms by default, 300 µs fused" in advice.evidence[1]
    assert advice.locations == ("t.py:9",)
