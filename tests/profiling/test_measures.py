"""Figures of a profile: nothing is judged without a measurement, shares add up, rare stalls are visible."""

from dataclasses import replace

import pytest

from viaduct.profiling.measures import (
    choose_headline,
    describe_missing_measurement,
    describe_uneven,
    make_closing_sentence,
    measure_ranks,
    measure_throughput,
)
from viaduct.profiling.record import Advice, Ceilings, Collective, Facts, Operator, Profile, Step
from viaduct.profiling.roofline import compute_roofline_share

from .sample_profiles import large_profile, make_advice, minimal_profile, small_profile

CEILINGS = Ceilings(bandwidth=10e9, flops={"float32": 100e9})


def burst_step(number: int, wait_us: float) -> Step:
    start = number * 1000.0
    return Step(0, number, start + wait_us, start + wait_us + 50, start + wait_us + 60, start)


def test_an_empty_list_of_advice_is_no_all_clear_for_what_was_not_measured():
    full = small_profile()
    for lacking in (
        replace(full, steps=()),
        replace(full, steps=full.steps[:3]),
        replace(full, operators=(), kernels=()),
        replace(full, facts=replace(full.facts, device="npu"), kernels=()),
    ):
        assert describe_missing_measurement(lacking)
        assert choose_headline(lacking).tone == "warn"
        assert "Nothing stands out" not in choose_headline(lacking).text
    assert choose_headline(full).text == "Nothing stands out"


def make_recorded(operators_us: float, phase: str = "forward") -> Profile:
    """Return timed steps of 54 ms and recorded ones whose forward and backward pass takes 51 ms."""
    steps = [Step(0, n, n * 54e3 + 1e3, n * 54e3 + 52e3, n * 54e3 + 54e3, n * 54e3) for n in range(8)]
    steps = [replace(step, interrupted_by="recording" if step.number > 4 else "") for step in steps]
    operator = Operator("aten::mm", 1, operators_us, operators_us, phase=phase)
    return Profile(Facts("x", "script"), steps=steps, operators=[operator])


def test_time_in_no_operator_is_no_all_clear():
    sleeping = make_recorded(800.0)
    assert choose_headline(sleeping).tone == "warn"
    assert choose_headline(sleeping).text.startswith("50.2 ms of a step's forward and backward pass lie in no")
    assert "no operator" in choose_headline(make_recorded(48_000.0, phase="update")).text
    assert "no operator" in make_closing_sentence(replace(sleeping, advice=[make_advice("loader", 1.0)]))
    assert choose_headline(make_recorded(40_000.0)).text == "Nothing stands out"


def test_what_recording_adds_to_a_step_is_not_reported_to_lie_in_no_operator():
    profile = make_recorded(40_000.0)
    longer = [replace(s, forward_start_us=s.forward_start_us - 40e3 * bool(s.interrupted_by)) for s in profile.steps]
    assert choose_headline(replace(profile, steps=longer)).text == "Nothing stands out"


def test_waiting_in_a_collective_is_accounted_for():
    profile = make_recorded(5000.0)
    waits = [replace(s, collectives=(Collective("a", s.end_us - 45e3, 40e3, None, 40e3),)) for s in profile.steps]
    assert choose_headline(replace(profile, steps=waits)).text == "Nothing stands out"


def test_operators_of_an_accelerator_do_not_cover_its_time():
    profile = replace(make_recorded(800.0), kernels=small_profile().kernels)
    assert choose_headline(replace(profile, facts=replace(profile.facts, device="cuda"))).text == "Nothing stands out"


def test_advice_for_accelerators_is_followed_by_the_result_for_this_cpu():
    remark = Advice("t", "a", (), None, "", name="synchronisation")
    assert make_closing_sentence(replace(make_recorded(40e3), advice=[remark])) == "Nothing else stands out"
    assert make_closing_sentence(replace(make_recorded(40e3), advice=[remark, make_advice("loader", 1.0)])) == ""
    assert make_closing_sentence(make_recorded(40e3)) == ""


def test_the_best_advice_is_the_headline():
    assert choose_headline(replace(minimal_profile(), advice=[make_advice("loader", 1.0)])).text.startswith(
        "The loader costs"
    )


def test_a_single_step_has_no_iteration():
    assert measure_ranks(minimal_profile()) == []
    assert measure_throughput(minimal_profile()) is None


def test_shares_add_up_and_phases_are_reported():
    (figures,) = measure_ranks(small_profile())
    assert sum(phase.share for phase in figures.phases) == pytest.approx(1.0)
    assert [round(phase.share, 2) for phase in figures.phases] == [0.61, 0.33, 0.06]


def test_a_loader_that_stalls_every_eighth_step_shows():
    steps = [burst_step(number, 800.0 if number % 8 == 7 else 0.0) for number in range(64)]
    (figures,) = measure_ranks(Profile(Facts("x", "script"), steps=steps))
    assert figures.phases[0].median_us == 0
    assert figures.phases[0].share == pytest.approx(800 / (800 + 8 * 60))
    assert [phase.name for phase in figures.uneven_phases] == ["data tail"]
    assert describe_uneven([figures]) == ["Uneven: data tail, mean 0.1 ms, median 0 ms."]
    assert describe_uneven([figures, replace(figures, rank=1)])[0].startswith("Uneven on ranks 0, 1: data tail")


def test_phases_that_were_not_measured_are_left_out():
    profile = small_profile()
    (figures,) = measure_ranks(replace(profile, facts=replace(profile.facts, phases_measured=False)))
    assert figures.phases == ()
    assert figures.iteration.median_us > 0


def test_throughput_counts_all_ranks_and_needs_the_batch():
    profile = small_profile()
    both = replace(profile, facts=replace(profile.facts, ranks=2))
    assert measure_throughput(both) == pytest.approx(2 * measure_throughput(profile))
    assert measure_throughput(replace(profile, facts=replace(profile.facts, batch=None))) is None


def test_collectives_of_recorded_steps_count_too():
    recorded = replace(
        burst_step(9, 0.0), interrupted_by="recording", collectives=(Collective("all_reduce", 0, 30.0, None, 10.0),)
    )
    (figures,) = measure_ranks(Profile(Facts("x", "script"), steps=[burst_step(1, 0.0), recorded]))
    assert (figures.steps, figures.collective_us, figures.exposed_us) == (1, 30.0, 10.0)


def test_exposed_time_is_unknown_if_one_collective_does_not_say():
    mixed = (Collective("a", 0, 30.0, None, 10.0), Collective("b", 0, 30.0))
    (figures,) = measure_ranks(Profile(Facts("x", "script"), steps=[replace(burst_step(1, 0.0), collectives=mixed)]))
    assert (figures.collective_us, figures.exposed_us) == (60.0, None)


@pytest.mark.parametrize(
    ("flops", "bytes_", "dtypes", "share"),
    [
        (1e6, 1e3, "float32, float32", 0.5),  # 10 µs at the compute roof, 0.1 µs at the memory roof
        (1e3, 1e5, "float32", 0.5),  # 10 µs at the memory roof
        (0, 1e5, "int64", 0.5),  # a copy computes nothing
        (1e6, 1e3, "int64, float32", 0.5),  # an index, and what is indexed
        (None, 1e5, "float32", None),
        (1e6, 1e3, "int64", None),  # no ceiling for this type
        (None, None, "float32", None),
    ],
)
def test_the_roofline_is_the_nearer_of_the_two_roofs(flops, bytes_, dtypes, share):
    assert compute_roofline_share(flops, bytes_, dtypes, 20.0, CEILINGS) == (
        None if share is None else pytest.approx(share)
    )
    assert compute_roofline_share(flops, bytes_, dtypes, 20.0, None) is None


def test_eight_ranks_of_five_thousand_steps_are_measured():
    ranks = measure_ranks(large_profile())
    assert [figures.rank for figures in ranks] == list(range(8))
    assert max(ranks, key=lambda figures: figures.iteration.mean_us).rank == 3
