"""Records of a profile: the times of a step, which steps count, and thinned memory points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viaduct.profiling.record import RECORDING, Facts, MemoryPoint, Operator, Profile, Sample, Step, thin_points

FIRST = Step(0, 0, forward_start_us=10.0, backward_end_us=80.0, end_us=100.0, previous_end_us=None)
SECOND = Step(0, 1, forward_start_us=115.0, backward_end_us=180.0, end_us=200.0, previous_end_us=100.0)


def make_profile(*steps: Step) -> Profile:
    return Profile(Facts("train.py", "script"), steps=steps)


def test_the_first_step_has_no_data_tail() -> None:
    assert FIRST.data_tail_us is None
    assert FIRST.iteration_us == 90.0


def test_the_phases_of_a_step_add_up_to_its_iteration() -> None:
    assert (SECOND.data_tail_us, SECOND.forward_backward_us, SECOND.update_tail_us) == (15.0, 65.0, 20.0)
    assert SECOND.iteration_us == 100.0


def test_first_and_interrupted_steps_do_not_count() -> None:
    evaluated = replace(SECOND, interrupted_by="evaluation")
    other_rank = replace(SECOND, rank=1, end_us=300.0)
    profile = make_profile(FIRST, evaluated, SECOND, other_rank)
    assert profile.regular_steps == [SECOND, other_rank]
    assert profile.regular_steps_of(1) == [other_rank]
    assert profile.iteration_us == 150.0
    assert make_profile(FIRST, evaluated).iteration_us is None


def test_a_recorded_step_is_known_among_other_interruptions() -> None:
    step = replace(SECOND, interrupted_by=f"evaluation, {RECORDING}")
    assert step.is_recorded
    assert step.interruptions == ["evaluation", RECORDING]
    assert not SECOND.is_recorded
    assert not replace(SECOND, interrupted_by="evaluation").is_recorded


def test_the_cost_of_an_operator_is_that_of_its_kernels_even_if_they_took_no_time() -> None:
    operator = Operator("aten::view", 1, total_us=9.0, self_us=4.0)
    assert operator.device_or_self_us == 4.0
    assert replace(operator, device_us=0.0).device_or_self_us == 0.0


def test_the_zero_of_a_profile_is_its_earliest_time() -> None:
    assert make_profile().start_us == 0.0
    profile = replace(make_profile(SECOND), memory=[MemoryPoint(95.0, 1)], samples=[Sample(90.0, {})])
    assert profile.start_us == 90.0
    assert replace(profile, samples=[]).start_us == 95.0


@pytest.mark.parametrize("count", [10, 11, 99])
def test_thinning_keeps_the_peak_and_the_order_of_time(count: int) -> None:
    points = [MemoryPoint(float(time), allocated=time * 37 % 101) for time in range(count)]
    thinned = thin_points(points[::-1], most=10)
    assert len(thinned) <= 10
    assert max(point.allocated for point in thinned) == max(point.allocated for point in points)
    assert [point.time_us for point in thinned] == sorted(point.time_us for point in thinned)
