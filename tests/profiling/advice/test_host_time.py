from profiling.advice.made_profiles import advise, make_profile, make_steps, multiply
from viaduct.profiling.record import Advice, Operator, Profile


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "host_time"), None)


def test_waiting_for_the_loader_is_not_host_time() -> None:
    steps = make_steps(data_us=5000.0, loader_wait_us=4800.0)
    assert find(make_profile(steps, operators=[multiply(8500.0)])) is None


def test_operators_between_steps_are_not_host_time() -> None:
    average = Operator("aten::lerp_", 20, 4800.0, 4800.0, phase="other", location="train.py:60")
    assert find(make_profile(make_steps(data_us=5000.0, loader_wait_us=20.0), operators=[average])) is None


def test_without_a_loader_the_time_may_be_preparing_data() -> None:
    assert find(make_profile(make_steps(data_us=5000.0), operators=[multiply(8500.0)])) is None


def test_no_workers_are_advised_for_a_sleep_between_steps() -> None:
    steps = make_steps(data_us=10_100.0, loader_wait_us=100.0)
    found = advise(make_profile(steps, operators=[multiply(8500.0)]))
    assert [advice.name for advice in found] == ["host_time"]
    assert "50% of each step is host time between steps" in found[0].title
    assert "num_workers" not in found[0].action
    assert found[0].gain_us == 10_000.0


def test_the_worst_rank_is_named_and_no_mean_over_ranks() -> None:
    steps = [
        *make_steps(rank=0, data_us=100.0, compute_us=19_000.0, loader_wait_us=50.0),
        *make_steps(rank=1, data_us=10_100.0, loader_wait_us=100.0),
    ]
    advice = find(make_profile(steps, operators=[multiply(8500.0)]))
    assert advice is not None
    assert "50% of each step on rank 1 is host time" in advice.title
    assert advice.gain_us == 10_000.0
