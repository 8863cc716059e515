from dataclasses import replace
from typing import Any

import pytest

from profiling.advice.made_profiles import advise, make_profile, make_steps, multiply
from viaduct.profiling.record import Advice, Ceilings, Operator, Profile

SHORT = Operator("aten::add", 200, 800.0, 800.0, phase="forward", flops=1000.0, bytes=12_000.0)
SMALL = {"shapes": "[64], [2, 64], [64, 64]", "flops": 16384.0 * 20, "bytes": 17_000.0 * 20}
STEPS = make_steps(data_us=0.0, compute_us=800.0, update_us=200.0)


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "small_batch"), None)


def make_tiny(**parts: Any) -> Profile:
    """Return 400 calls of operators that hardly compute anything."""
    operators = [multiply(200.0, calls=20, **SMALL), SHORT, Operator("aten::t", 180, 200.0, 200.0, phase="backward")]
    return make_profile(STEPS, operators=operators, **parts)


def test_a_step_of_long_operators_is_no_fault() -> None:
    assert find(make_profile(operators=[multiply(9000.0, calls=20), SHORT])) is None


def test_a_step_that_the_parts_do_not_explain_gets_no_advice() -> None:
    assert find(make_profile(make_steps(compute_us=246_000.0), operators=make_tiny().operators)) is None


def test_operators_that_a_busy_machine_makes_slow_change_nothing() -> None:
    assert find(make_profile(operators=[multiply(90.0, calls=20), SHORT])) is None
    slow = make_steps(9, data_us=0.0, compute_us=99_000.0)
    waiting = [multiply(90_000.0, calls=20, **SMALL), replace(SHORT, calls=400)]
    advice = find(make_profile([*slow, *STEPS[:1]], operators=waiting))
    assert advice is not None
    assert (advice.gain_us or 0.0) < 1000.0  # of the step that nothing disturbed


def test_a_large_update_of_a_usual_batch_is_no_fault() -> None:
    update = Operator("aten::addcdiv_", 6, 6000.0, 6000.0, phase="update", flops=1e6, bytes=4e7)
    assert find(make_profile(operators=[multiply(900.0, calls=3), SHORT, update], facts={"batch": 128})) is None


def test_compiled_code_counts_as_work() -> None:
    compiled = Operator("CompiledFxGraph", 1, 9000.0, 7000.0, phase="forward")
    assert find(make_profile(operators=[compiled, SHORT])) is None


def test_an_operator_of_unknown_arithmetic_counts_as_far_as_its_inputs_allow() -> None:
    layer = Operator("aten::mkldnn_rnn_layer", 1, 900.0, 900.0, phase="forward", shapes="[32, 128, 256], [1024, 256]")
    assert find(make_profile(STEPS, operators=[layer, SHORT])) is None
    loss = Operator("aten::nll_loss_backward", 1, 900.0, 900.0, phase="backward", shapes="[], [2, 10], [2]")
    assert find(make_profile(STEPS, operators=[loss, replace(SHORT, calls=400)])) is not None


def test_without_operators_nothing_is_known() -> None:
    assert find(make_profile()) is None


def test_an_accelerators_idle_time_is_not_judged_by_the_host() -> None:
    assert find(make_tiny(device="cuda")) is None


def test_fixed_cost_and_the_model_are_named() -> None:
    advice = find(make_tiny())
    assert advice is not None
    assert "about 80% of a step is fixed cost" in advice.title
    assert "8 times as many 3.3 times" in advice.action
    assert advice.gain_us == pytest.approx(800.0 * 7 / 8)  # no more than its own parts
    assert "400 operators need 800 µs for being called" in advice.evidence[0]


def test_of_two_samples_reading_and_updating_the_weights_is_fixed_cost() -> None:
    product = multiply(600.0, calls=3, shapes="[1024], [2, 1024], [1024, 1024]", flops=3 * 4.2e6, bytes=3 * 4.2e6)
    update = Operator("aten::add_", 3, 3000.0, 3000.0, phase="update", flops=3e6, bytes=3 * 1.2e7)
    operators, ceilings = [product, update], Ceilings(2e10, {"float32": 1.5e11})
    assert find(make_profile(operators=operators, ceilings=ceilings, facts={"batch": 2})) is not None
    assert find(make_profile(operators=operators, ceilings=ceilings, facts={"batch": 64})) is None


def test_waits_and_compilation_are_no_part_of_the_gain() -> None:
    steps = make_steps(
        data_us=90_000.0, compute_us=50_800.0, update_us=200.0, loader_wait_us=90_000.0, compile_us=50_000.0
    )
    advice = find(make_profile(steps, operators=make_tiny().operators))
    assert advice is not None
    assert advice.gain_us is not None
    assert advice.gain_us < 1000.0
