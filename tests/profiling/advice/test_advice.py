"""Advice as a whole: what comes first, and when there is none."""

import subprocess
import sys

from profiling.advice.made_profiles import (
    FixedTimes,
    advise,
    convolve,
    make_profile,
    make_steps,
    multiply,
    read_value,
)
from viaduct.profiling.advice import add_advice, load_rules
from viaduct.profiling.measures import choose_headline
from viaduct.profiling.record import Kernel, Operator


def test_a_step_of_long_operators_gets_no_advice() -> None:
    assert advise(make_profile(operators=[multiply(8500.0)]), FixedTimes((100.0, 100.0))) == []


def test_two_steps_are_not_enough_for_advice() -> None:
    steps = make_steps(2, data_us=50_000.0, loader_wait_us=50_000.0)
    assert advise(make_profile(steps)) == []


def test_nothing_is_measured_here_for_the_profile_of_another_tool() -> None:
    microbenchmarks = FixedTimes((8000.0, 4000.0))
    assert advise(make_profile(kind="kineto", operators=[convolve(8500.0)]), microbenchmarks) == []
    assert microbenchmarks.asked == []


def test_what_could_not_be_measured_is_no_all_clear() -> None:
    update = Operator("aten::addcdiv_", 2, 900.0, 900.0, phase="update", shapes="[512, 1024], [512, 1024]")
    kernels = [Kernel("aten::addcdiv_", "optimizer", 2, 1800.0)]
    steps = make_steps(compute_us=6900.0, update_us=3000.0)
    profile = make_profile(steps, operators=[convolve(5000.0), update], kernels=kernels)
    failed = add_advice(profile, FixedTimes(None))
    subjects = "Not judged, because it was not measured: the layout of convolutions, a fused Adam"
    assert failed.facts.notes[-1] == f"{subjects} (RuntimeError: no memory)."
    assert choose_headline(failed).tone == "warn"
    assert "Nothing stands out" not in choose_headline(failed).text
    assert add_advice(failed).facts.notes[-1] == f"{subjects}."  # the note of an earlier call is replaced
    measured = add_advice(failed, FixedTimes((1000.0, 1000.0)))
    assert measured.facts.notes == profile.facts.notes
    assert choose_headline(measured).text == "Nothing stands out"


def test_a_profile_without_steps_gets_no_advice() -> None:
    assert advise(make_profile([])) == []


def test_the_largest_gain_comes_first() -> None:
    steps = make_steps(data_us=20_000.0, loader_wait_us=20_000.0)
    profile = make_profile(steps, operators=[read_value(), convolve(8500.0)])
    found = advise(profile, FixedTimes((8000.0, 4000.0)))
    assert [advice.name for advice in found] == ["loader", "layout", "synchronisation"]
    gains = [advice.gain_us or 0.0 for advice in found]
    assert gains == sorted(gains, reverse=True)


def test_every_advice_says_its_figures() -> None:
    steps = make_steps(data_us=20_000.0, loader_wait_us=20_000.0)
    for advice in advise(make_profile(steps, operators=[read_value(), convolve(8500.0)]), FixedTimes((8000.0, 4000.0))):
        assert any(character.isdigit() for character in advice.title)
        assert advice.evidence
        assert all(any(character.isdigit() for character in sentence) for sentence in advice.evidence)
        assert advice.gain_basis


def test_every_rule_in_the_folder_is_called() -> None:
    names = set(load_rules())
    expected = {"loader", "synchronisation", "fp32_island", "layout", "small_batch", "stragglers", "recompilation"}
    expected |= {"host_time"}
    assert expected | {"communication", "host_gaps", "small_kernels", "unfused_norm", "optimizer", "garbage"} == names
    assert all(0 < rule.CERTAINTY <= 1 for rule in load_rules().values())


def test_advising_needs_no_torch() -> None:
    code = "import sys; from viaduct.profiling.advice import load_rules; load_rules(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
