"""The terminal summary: "Nothing stands out" only after measurements, whole names, no control characters."""

from dataclasses import replace

import pytest

from viaduct.profiling.record import Advice, Facts, Operator, Profile
from viaduct.profiling.summary import MAX_PROSE_WIDTH, format_summary

from .sample_profiles import LONG, UNICODE, large_profile, minimal_profile, small_profile


def test_one_step_is_not_enough_for_nothing_stands_out():
    text = format_summary(minimal_profile())
    assert "Too few steps to judge" in text
    assert "an iteration begins at the end of the previous step" in text.replace("\n", " ")
    assert "Nothing stands out" not in text


def test_a_profile_without_steps_is_reported_as_such():
    text = format_summary(Profile(Facts("train.py", "script", ended="exit code 1 before the first step")))
    assert "No step was measured" in text
    assert text.endswith("Ended early: exit code 1 before the first step")


def test_steps_without_operators_are_not_called_healthy():
    text = format_summary(replace(small_profile(), operators=(), kernels=()))
    assert "operators were not recorded, so nothing within them was judged" in text.replace("\n", " ")
    assert "Nothing stands out" not in text


def test_a_healthy_profile_is():
    assert "\nNothing stands out.\n" in format_summary(small_profile())


def test_the_four_times_stand_with_their_shares():
    lines = format_summary(small_profile()).splitlines()
    found = {line[:37].strip(): line[37:].split()[:2] for line in lines if line.endswith("█")}
    assert found == {
        "iteration": ["102.7", "100.0"],
        "data tail": ["62.7", "61.0"],
        "forward + backward": ["33.9", "33.0"],
        "gradient aggregation and update tail": ["6.2", "6.0"],
    }
    assert "623 images/s" in lines


def test_images_per_second_are_left_out_where_the_batch_is_not_known():
    profile = small_profile()
    assert "images/s" not in format_summary(replace(profile, facts=replace(profile.facts, batch=None)))


def test_steps_that_were_all_recorded_are_not_called_timed():
    profile = small_profile()
    read = replace(profile, facts=replace(profile.facts, timed_steps=0, recorded_steps=3))
    text = format_summary(read).replace("\n", " ")
    assert "3 steps, all of them under the operator profiler" in text
    assert "0 steps" not in text


def test_operators_of_an_unknown_number_of_steps_are_not_called_unrecorded():
    profile = small_profile()
    facts = replace(profile.facts, warmup_steps=0, timed_steps=0, recorded_steps=0)
    text = format_summary(replace(profile, facts=facts))
    assert "no steps were found" in text
    assert "no operators recorded" not in text
    assert "0 steps timed after 3 of warm-up" in format_summary(replace(profile, facts=replace(facts, warmup_steps=3)))


def test_every_rank_has_a_line():
    lines = format_summary(large_profile(steps=20, operators=20)).splitlines()
    rows = [line.split() for line in lines if line[:4].strip().isdigit() and "░" in line]
    assert [row[0] for row in rows] == [str(rank) for rank in range(8)]
    assert float(rows[3][1]) > 1.25 * float(rows[2][1])


def test_phases_that_were_not_measured_are_not_shown_as_zero():
    profile = small_profile()
    text = format_summary(replace(profile, facts=replace(profile.facts, phases_measured=False)))
    assert "data tail" not in text
    assert "Phases are not known for all steps" in text


@pytest.mark.parametrize("width", [1, 40, 60, 80, 100, 100_000])
def test_no_name_is_cut_at_any_width_and_prose_fits_it(width):
    text = format_summary(small_profile(advice=True), width)
    assert LONG in text
    assert "network.layer1.0.block.conv1" in text
    prose = [line for line in text.splitlines() if "DataLoader" in line or "waited" in line]
    assert prose
    assert all(len(line) <= min(max(width, 40), MAX_PROSE_WIDTH) for line in prose)


def test_control_characters_in_a_name_are_escaped():
    operator = Operator("aten::\x1b[31mred", 1, 10.0, 10.0, module="a\nb\u202ec")
    text = format_summary(replace(small_profile(), operators=[operator]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "aten::\\x1b[31mred" in text
    assert "a\\nb\\u202ec" in text
    assert UNICODE not in format_summary(small_profile())


def test_advice_is_numbered_with_its_evidence_and_gain():
    text = format_summary(large_profile(steps=20, operators=20))
    assert text.index("1. The loader") < text.index("2. The synchronisation") < text.index("3. The layout")
    assert "- The host waited 61.0 ms of 100.0 ms for a batch." in text
    assert "Expected gain: 61.0 ms a step, 59.4 % of the iteration (the wait that would vanish)" in text
    assert "Expected gain: not measured" in text
    assert "train.py:41" in text


def test_how_the_time_points_were_found_and_what_is_missing_is_reported():
    text = format_summary(small_profile())
    assert "the first call of a module after the optimizer's step." in text
    assert "No GPU figures: this machine has none." in text


def test_the_roofline_is_a_dash_where_it_is_not_known():
    operator = Operator("aten::mm", 1, 20.0, 20.0, dtypes="float32", flops=1.5e6, bytes=1000.0)
    profile = replace(small_profile(), operators=[operator])
    lines = [format_summary(each).splitlines() for each in (profile, replace(profile, ceilings=None))]
    known, unknown = (next(line for line in found if "aten::mm" in line) for found in lines)
    assert known.endswith("25 %")
    assert unknown.endswith("–")


def test_time_that_no_operator_covers_is_reported_in_place_of_an_all_clear():
    profile = small_profile()
    steps = [replace(step, interrupted_by="recording" if step.number > 6 else "") for step in profile.steps]
    operators = [replace(row, self_us=10.0) for row in profile.operators]
    text = " ".join(format_summary(replace(profile, steps=steps, operators=operators)).split())
    assert "pass lie in no operator: Python, waiting, or another process on these cores; they were not judged." in text
    assert "Nothing stands out" not in text


def test_advice_for_accelerators_is_followed_by_the_result_for_this_cpu():
    remark = Advice("For accelerators: 1", "Read it later.", (), None, "none on this CPU", name="synchronisation")
    text = format_summary(replace(small_profile(), advice=[remark]))
    assert "Expected gain: none on this CPU\n\nNothing else stands out." in text


def test_steps_that_are_not_counted_are_named():
    profile = small_profile()
    kinds = {2: "evaluation", 5: "evaluation", 6: "checkpoint", 8: "recording", 9: "recording, evaluation"}
    steps = [replace(step, interrupted_by=kinds.get(step.number, "")) for step in profile.steps]
    text = format_summary(replace(profile, steps=steps))
    assert "\nNot counted: 2 steps (evaluation), 1 step (checkpoint).\n" in text
    assert "Not counted" not in format_summary(profile)
