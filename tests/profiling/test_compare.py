"""Two profiles: what counts as a difference, and what is said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from viaduct.profiling.compare import compare_profiles
from viaduct.profiling.compare_text import format_difference
from viaduct.profiling.readers import read_any
from viaduct.profiling.record import Kernel, MemoryPoint, Operator

from .compared_profiles import NOISY, STEADY, make_run, make_steps
from .complete_profile import make_profile
from .readers.profiler_files import make_kineto, write_torch_npu


def test_profiles_of_the_same_speed_do_not_differ() -> None:
    difference = compare_profiles(make_run(steps=make_steps(STEADY)), make_run("b", steps=make_steps(STEADY[::-1])))
    assert not difference.differs
    assert format_difference(difference).startswith("No difference beyond the noise of the steps")


def test_a_change_within_the_spread_of_the_steps_is_noise() -> None:
    later = [tail + 80 for tail in NOISY]
    difference = compare_profiles(make_run(steps=make_steps(NOISY)), make_run("b", steps=make_steps(later)))
    assert difference.iteration.change_us == pytest.approx(80)
    assert not difference.differs


def test_a_change_below_what_two_runs_differ_by_is_noise() -> None:
    difference = compare_profiles(make_run(steps=make_steps([100.0] * 8)), make_run("b", steps=make_steps([110.0] * 8)))
    assert difference.iteration.noise_us == pytest.approx(60)  # 5 % of 1,200
    assert not difference.differs


def test_too_few_steps_are_not_judged() -> None:
    difference = compare_profiles(
        make_run(steps=make_steps([100.0] * 2)), make_run("b", steps=make_steps([9000.0] * 8))
    )
    assert not difference.differs
    assert not difference.can_be_judged
    assert "Too few steps to judge" in format_difference(difference)


def test_two_profiles_without_steps_are_not_called_identical() -> None:
    difference = compare_profiles(make_run("runs/a"), make_run("runs/b"))
    assert "identical" not in format_difference(difference)
    assert difference.exit_code == 2


def test_the_exit_code_says_whether_the_iterations_differ() -> None:
    steady, slow = make_run(steps=make_steps(STEADY)), make_run("b", steps=make_steps(STEADY, compute=3000.0))
    assert compare_profiles(steady, steady).exit_code == 0
    assert compare_profiles(steady, make_run("b", steps=make_steps(STEADY[::-1]))).exit_code == 0
    assert compare_profiles(steady, slow).exit_code == 1
    assert compare_profiles(steady, make_run("b", steps=make_steps(STEADY[:2]))).exit_code == 2


def test_phases_that_were_not_measured_are_not_compared() -> None:
    unknown = make_run("b", steps=make_steps(STEADY, compute=3000.0), facts={"phases_measured": False})
    difference = compare_profiles(make_run(steps=make_steps(STEADY)), unknown)
    assert difference.phases == ()
    assert difference.differs
    assert "Phases are not known for all steps of both profiles" in format_difference(difference)


def test_identical_profiles_are_reported_to_be_identical() -> None:
    difference = compare_profiles(make_profile(), make_profile())
    assert difference.is_identical
    assert not difference.differs
    text = format_difference(difference)
    assert text.startswith("The two profiles have the same steps, operators, kernels, memory, ")


def test_facts_that_differ_are_shown_for_identical_records_too() -> None:
    profile = make_profile()
    other = dataclasses.replace(profile, facts=dataclasses.replace(profile.facts, batch=77))
    text = format_difference(compare_profiles(profile, other))
    assert text.startswith("The two profiles have the same steps")
    assert "batch" in text
    assert "77" in text


def test_profiles_that_differ_in_one_operator_are_not_identical() -> None:
    profile = make_profile()
    other = dataclasses.replace(profile, operators=[*profile.operators[:-1], Operator("aten::add", 4.0, 8.0, 8.5)])
    assert not compare_profiles(profile, other).is_identical


def test_a_slower_loader_is_found_in_the_data_tail() -> None:
    slow = make_run("runs/slow", steps=make_steps([tail + 500 for tail in STEADY]))
    difference = compare_profiles(make_run("runs/fast", steps=make_steps(STEADY)), slow)
    assert difference.differs
    assert [phase.exceeds_noise for phase in difference.phases] == [True, False, False]
    text = format_difference(difference)
    assert text.startswith("slow is 41.7 % slower (1.70 ms an iteration instead of 1.20 ms), compared with fast")
    assert "the largest change is in data tail (+500.0 µs)" in text


def test_a_stall_every_eighth_step_is_found_in_the_mean() -> None:
    stalls = [100.0] * 7 + [3000.0]
    difference = compare_profiles(
        make_run(steps=make_steps([100.0] * 160)), make_run("b", steps=make_steps(stalls * 20))
    )
    assert difference.iteration.change_us == pytest.approx(0)
    assert difference.differs
    assert "% slower on average" in format_difference(difference)


def test_a_faster_run_differs_too() -> None:
    difference = compare_profiles(
        make_run(steps=make_steps(STEADY)), make_run("b", steps=make_steps(STEADY, compute=500.0))
    )
    assert difference.differs
    assert "faster" in format_difference(difference)


def test_operators_are_matched_by_signature_then_by_name() -> None:
    before = [
        Operator("conv", 1, 9, 10.0, shapes="[1]", module="a"),
        Operator("conv", 1, 9, 5.0, shapes="[2]", module="b"),
        Operator("relu", 2, 9, 4.0),
    ]
    after = [
        Operator("conv", 1, 9, 30.0, shapes="[1]", module="a"),
        Operator("conv", 3, 9, 6.0, shapes="[3]", module="b"),
        Operator("gelu", 2, 9, 7.0),
    ]
    operators = compare_profiles(make_run(operators=before), make_run("b", operators=after)).operators
    assert [(each.name, each.change_us, each.matched_by) for each in operators] == [
        ("conv", 20.0, "signature"),
        ("gelu", 7.0, ""),
        ("conv", 1.0, "name"),
        ("relu", -4.0, ""),
    ]
    assert operators[0].ratio == 3.0
    assert operators[1].ratio is None


def test_the_time_of_a_device_counts_where_there_is_one_and_ranks_are_averaged() -> None:
    before = [Operator("conv", 1, 9, 10.0, device_us=40.0, rank=rank) for rank in range(2)]
    after = [Operator("conv", 1, 9, 10.0, device_us=50.0)]
    (operator,) = compare_profiles(make_run(operators=before), make_run("b", operators=after)).operators
    assert (operator.before_us, operator.after_us) == (40.0, 50.0)


def test_kernels_memory_and_facts_are_compared() -> None:
    before = make_run(
        kernels=[Kernel("k1", "convolution", 1, 10.0), Kernel("k2", "convolution", 1, 5.0)],
        memory=[MemoryPoint(0.0, 1 << 20), MemoryPoint(1.0, 5 << 20)],
        facts={"batch": 32, "versions": {"torch": "2.4.0"}},
        steps=make_steps(STEADY),
    )
    after = make_run(
        "b",
        kernels=[Kernel("k1", "convolution", 1, 30.0), Kernel("c", "copies", 1, 2.0)],
        memory=[MemoryPoint(0.0, 2 << 20)],
        facts={"batch": 64, "versions": {"torch": "2.13.0"}},
        steps=make_steps(STEADY),
    )
    difference = compare_profiles(before, after)
    assert [(each.name, each.before_us, each.after_us) for each in difference.kernels] == [
        ("convolution", 15.0, 30.0),
        ("copies", 0.0, 2.0),
    ]
    assert difference.memory == (5 << 20, 2 << 20)
    assert difference.facts == (("batch", "32", "64"), ("torch", "2.4.0", "2.13.0"))
    text = format_difference(difference)
    assert "The batches differ (32 and 64): 26,658.3 and 53,316.7 samples/s." in text
    assert "Memory at the peak: 5.0 MiB → 2.0 MiB" in text


def test_a_gpu_and_an_npu_are_compared_by_the_parts_of_a_step(tmp_path: Path) -> None:
    (tmp_path / "gpu.pt.trace.json").write_text(json.dumps(make_kineto(steps=5, cuda=True)))
    write_torch_npu(tmp_path / "npu", steps=5)
    difference = compare_profiles(read_any(tmp_path / "gpu.pt.trace.json"), read_any(tmp_path / "npu"))
    parts = {figure.name: (figure.before_us, figure.after_us) for figure in difference.step_parts}
    assert parts["E2E"] == pytest.approx((100, 100))
    assert parts["computing"] == pytest.approx((48, 60))  # kernels of 15, 25 and 8
    assert parts["communication(not overlapped)"] == pytest.approx((10, 10))
    assert parts["free"] == pytest.approx((42, 30))
