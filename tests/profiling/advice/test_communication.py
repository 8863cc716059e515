from dataclasses import replace

from profiling.advice.made_profiles import advise, make_profile, make_steps, with_collective
from viaduct.profiling.record import Advice, Profile, Step


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "communication"), None)


def test_communication_behind_the_backward_pass_is_no_fault() -> None:
    ranks = [with_collective(make_steps(rank=rank), 4000.0, 400.0, after_backward=False) for rank in (0, 1)]
    assert find(make_profile([*ranks[0], *ranks[1]])) is None


def test_waiting_for_a_slow_rank_is_not_communication() -> None:
    fast = with_collective(make_steps(rank=0), 4000.0, 4000.0, after_backward=True)
    slow = with_collective(make_steps(rank=1), 300.0, 300.0, after_backward=True)
    assert find(make_profile([*fast, *slow])) is None


def test_an_exposed_all_reduce_is_named_with_its_share() -> None:
    ranks = [
        with_collective(make_steps(rank=rank, compute_us=5900.0, update_us=4000.0), 3500.0, 3500.0, after_backward=True)
        for rank in (0, 1)
    ]
    advice = find(make_profile([*ranks[0], *ranks[1]]))
    assert advice is not None
    assert "35% of each step" in advice.title
    assert "DistributedDataParallel" in advice.action
    assert advice.gain_us == 3500.0
    assert "4 MB" in advice.evidence[0]


def test_no_more_is_promised_than_the_backward_pass_can_hide() -> None:
    steps = with_collective(make_steps(compute_us=1500.0, update_us=8400.0), 8000.0, 8000.0, after_backward=True)
    advice = find(make_profile(steps))
    assert advice is not None
    assert advice.gain_us == 1000.0  # two thirds of forward and backward


def record(steps: list[Step]) -> list[Step]:
    return [replace(step, number=step.number + 10, interrupted_by="recording") for step in steps]


def test_what_begins_within_the_backward_pass_promises_no_gain() -> None:
    seen = with_collective(make_steps(5, compute_us=19_000.0), 6000.0, 6000.0, after_backward=False)
    advice = find(make_profile([*make_steps(10), *record(seen)]))
    assert advice is not None
    assert "30% of each step" in advice.title
    assert "bucket_cap_mb" in advice.action
    assert advice.gain_us is None
    assert advice.evidence[1] == "0% of the collectives begin after the backward pass."


def test_the_gain_never_exceeds_the_exposed_time() -> None:
    seen = with_collective(make_steps(5, compute_us=5000.0, update_us=4900.0), 4000.0, 4000.0, after_backward=True)
    advice = find(make_profile([*make_steps(10, compute_us=99_000.0), *record(seen)]))  # timed steps were disturbed
    assert advice is not None
    assert advice.gain_us == 4000.0


def test_times_of_recorded_steps_are_scaled_to_timed_ones() -> None:
    seen = with_collective(make_steps(5, compute_us=12_000.0, update_us=7900.0), 6000.0, 6000.0, after_backward=True)
    advice = find(make_profile([*make_steps(10), *record(seen)]))
    assert advice is not None
    assert "30% of each step" in advice.title
    assert "per recorded step of 20 ms take 6 ms" in advice.evidence[0]
    assert "In a timed step of 10 ms that is about 3 ms." in advice.evidence[0]
    assert advice.gain_us == 3000.0
