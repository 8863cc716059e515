from dataclasses import replace

from profiling.advice.made_profiles import advise, make_profile, make_steps, with_collective
from viaduct.profiling.record import Advice, Profile, Step


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "stragglers"), None)


def make_rank(rank: int, waits_us: float, count: int = 10, **fields: float) -> list[Step]:
    steps = make_steps(count, rank=rank, **fields)  # type: ignore[arg-type]
    return with_collective(steps, waits_us + 200.0, waits_us + 200.0, after_backward=False)


def test_one_rank_has_no_straggler() -> None:
    assert find(make_profile(make_rank(0, 4000.0))) is None


def test_ranks_within_five_percent_are_even() -> None:
    assert find(make_profile([*make_rank(0, 300.0), *make_rank(1, 0.0)])) is None


def test_ranks_that_take_turns_in_being_slow_are_even() -> None:
    steps: list[Step] = []
    for number in range(10):
        for rank in (0, 1):
            found = make_rank(rank, 3000.0 if number % 2 == rank else 0.0)
            steps.append(found[number])
    assert find(make_profile(steps)) is None


def test_a_rank_that_is_slow_now_and_then_is_no_straggler() -> None:
    waits = [9000.0, 3000.0, 1000.0, 900.0, 300.0] * 2
    fast = [make_rank(0, wait)[number] for number, wait in enumerate(waits)]
    assert find(make_profile([*fast, *make_rank(1, 0.0)])) is None


def test_one_odd_step_does_not_hide_a_large_difference() -> None:
    fast = [make_rank(0, wait, count=5)[number] for number, wait in enumerate([0.0, 5000.0, 5000.0, 4000.0, 5000.0])]
    assert find(make_profile([*fast, *make_rank(1, 0.0, count=5)])) is not None
    hardly = [make_rank(0, wait, count=5)[number] for number, wait in enumerate([0.0, 1000.0, 1000.0, 800.0, 1000.0])]
    assert find(make_profile([*hardly, *make_rank(1, 0.0, count=5)])) is None


def test_a_few_steps_do_not_make_a_straggler() -> None:
    assert find(make_profile([*make_rank(0, 3000.0, count=4), *make_rank(1, 0.0, count=4)])) is None


def test_ranks_without_collectives_cannot_be_compared() -> None:
    assert find(make_profile([*make_steps(rank=0, compute_us=5000.0), *make_steps(rank=1)])) is None


def test_the_slow_rank_is_named_with_the_wait_of_the_others() -> None:
    advice = find(make_profile([*make_rank(0, 4000.0), *make_rank(1, 0.0), *make_rank(2, 4000.0)]))
    assert advice is not None
    assert advice.title == "Rank 1 is slower than the others, which wait up to 4 ms for it in each step"
    assert "in its computation" in advice.action
    assert round(advice.gain_us or 0) == 2667  # its surplus over the mean


def test_a_rank_whose_data_come_late_is_distinguished() -> None:
    late = make_rank(1, 0.0, data_us=4100.0, compute_us=5000.0)
    advice = find(make_profile([*make_rank(0, 4000.0, data_us=100.0, compute_us=9000.0), *late]))
    assert advice is not None
    assert "its data take longer" in advice.action
    assert advice.gain_us == 4000.0


def make_late_data(count: int, tail_us: float, compute_us: float) -> list[Step]:
    """Return timed steps of two ranks without collectives, and one recorded step of each that shows some."""
    prompt = make_steps(count, rank=0, data_us=100.0, compute_us=compute_us)
    late = make_steps(count, rank=1, data_us=tail_us + 100.0, compute_us=9000.0)
    recorded = [replace(step, interrupted_by="recording") for step in make_rank(0, 60_000.0, count=1)]
    return [*prompt, *late, *recorded]


def test_ranks_with_iterations_of_different_length_do_not_wait_for_each_other() -> None:
    assert find(make_profile(make_late_data(10, tail_us=60_000.0, compute_us=9000.0))) is None


def test_a_data_tail_of_all_ranks_is_no_straggler() -> None:
    assert find(make_profile(make_late_data(10, tail_us=0.0, compute_us=9000.0))) is None


def test_late_data_are_found_in_timed_steps_that_show_no_collectives() -> None:
    advice = find(make_profile(make_late_data(10, tail_us=60_000.0, compute_us=69_000.0)))
    assert advice is not None
    assert advice.title == "Rank 1 is slower than the others, which wait up to 60 ms for it in each step"
    assert "rank 0 100 µs, rank 1 60.1 ms" in advice.evidence[0]
    assert advice.gain_us == 60_000.0


def test_times_of_recorded_steps_are_named_as_such_and_scaled() -> None:
    timed = [*make_steps(10, rank=0, compute_us=4000.0), *make_steps(10, rank=1, compute_us=4000.0)]
    seen = [*make_rank(0, 4000.0), *make_rank(1, 0.0)]
    recorded = [replace(step, number=step.number + 10, interrupted_by="recording") for step in seen]
    advice = find(make_profile([*timed, *recorded]))
    assert advice is not None
    assert "Own time per recorded step" in advice.evidence[0]
    assert advice.gain_us == 1000.0  # half of 4 ms is surplus, in steps of 5 instead of 10 ms
