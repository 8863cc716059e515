"""Steps of a trace, from the marks that torch records by itself."""

from __future__ import annotations

from typing import Any

import pytest

from viaduct.profiling.record import Collective, Step
from viaduct.profiling.trace_steps import Launch, add_collectives, find_device_times, find_outermost, find_steps

from .traces import annotate, make_event

LOADER, OPTIMIZER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def make_step(number: int, start: float, *, scheduled: bool = True) -> list[Any]:
    """Return a step of 100 µs: loader 0 to 10, copy 10 to 15, forward 20 to 50, backward to 80, update 85 to 95."""
    events = [
        annotate(LOADER, start, 10),
        make_event("aten::to", start + 10, 5),
        make_event("aten::linear", start + 20, 30),
        make_event("aten::mm", start + 25, 20),
        make_event(ENGINE, start + 55, 25),
        annotate(OPTIMIZER, start + 85, 10),
    ]
    return [annotate(f"ProfilerStep#{number}", start, 100), *events] if scheduled else events


def test_a_trace_without_marks_has_no_steps() -> None:
    found = find_steps([make_event("aten::mm", 0, 10), annotate(OPTIMIZER, 20, 5), {"ph": "M"}])
    assert found.steps == []
    assert found.notes == ["The trace has neither ProfilerStep#n nor several Optimizer.step: its steps are not known."]


def test_copies_and_the_loader_do_not_begin_the_forward_pass() -> None:
    found = find_steps([*make_step(3, 0), *make_step(4, 100)], rank=2)
    first, second = found.steps
    assert (first.rank, first.number, first.previous_end_us) == (2, 3, None)
    assert (second.forward_start_us, second.backward_end_us, second.end_us) == (120, 180, 195)
    assert second.previous_end_us == 95
    assert second.loader_wait_us == 10
    assert found.step_spans == [(0, 100), (100, 200)]
    assert found.phases_measured


def test_a_step_after_a_gap_in_the_numbers_does_not_follow() -> None:
    found = find_steps([*make_step(3, 0), *make_step(7, 100)])
    assert [step.previous_end_us for step in found.steps] == [None, None]


def test_a_window_without_passes_is_left_out_with_a_note() -> None:
    found = find_steps([*make_step(3, 0), annotate("ProfilerStep#4", 100, 50)])
    assert [step.number for step in found.steps] == [3]
    assert found.notes == ["Step 4 of the trace has neither a forward nor a backward pass: it is left out."]


def test_without_a_schedule_a_step_ends_with_the_optimizer() -> None:
    found = find_steps([*make_step(0, 0, scheduled=False), *make_step(0, 100, scheduled=False)])
    assert [step.end_us for step in found.steps] == [95, 195]
    assert found.phases_found_by[0] == "There is no ProfilerStep#n: a step ends with each Optimizer.step."


def test_without_a_backward_pass_the_whole_step_is_one_phase() -> None:
    events = [annotate("ProfilerStep#0", 0, 100), make_event("aten::mm", 20, 10)]
    found = find_steps(events)
    assert not found.phases_measured
    assert found.steps[0].forward_backward_us == 100
    assert "counts as forward + backward" in found.phases_found_by[-1]


def test_an_operator_with_a_backward_one_begins_the_forward_pass() -> None:
    flow = {"ph": "s", "cat": "fwdbwd", "ts": 36.0}
    events = [*make_step(0, 0), make_event("aten::relu", 17, 1), make_event("aten::conv2d", 35, 10, thread=3), flow]
    assert find_steps(events[:-1]).steps[0].forward_start_us == 17
    assert find_steps(events).steps[0].forward_start_us == 20, "the outermost operator around the flow"


def test_kernels_move_the_time_points_to_the_device() -> None:
    launches = [Launch(25, 40, 60), Launch(57, 62, 110), Launch(90, 112, 118)]
    assert find_device_times(launches, 20, 80, 95) == (40, 110, 118)
    assert find_device_times([Launch(300, 310, 320)], 20, 80, 95) == (20, 80, 95)


def test_a_forward_pass_that_overlaps_the_step_before_has_a_data_tail_of_0() -> None:
    launches = [Launch(25, 30, 60), Launch(90, 100, 140), Launch(125, 130, 160)]
    found = find_steps([*make_step(0, 0), *make_step(1, 100)], launches)
    assert found.steps[1].data_tail_us == 0
    assert any("overlaps the previous step" in note for note in found.notes)


def test_operators_inside_of_others_are_not_outermost() -> None:
    assert find_outermost([(5.0, 8.0, "b"), (0.0, 10.0, "a"), (0.0, 4.0, "c"), (10.0, 12.0, "d")]) == [
        (0.0, 10.0, "a"),
        (10.0, 12.0, "d"),
    ]


@pytest.mark.parametrize(("computing", "exposed"), [(None, None), ([], 20), ([(40, 55), (50, 60), (65, 90)], 5)])
def test_collectives_belong_to_the_step_in_which_they_begin(computing: Any, exposed: float | None) -> None:
    steps = [Step(0, 0, 10, 80, 100, 0), Step(0, 1, 110, 180, 200, 100)]
    first, second = add_collectives(steps, [Collective("a", 250, 5), Collective("b", 50, 20)], computing)
    assert [(row.name, row.exposed_us) for row in first.collectives] == [("b", exposed)]
    assert second.collectives == ()
