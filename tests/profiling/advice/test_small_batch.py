import pytest

from profiling.advice.made_profiles import make_profile, make_steps, multiply
from viaduct.profiling.advice import advise
from viaduct.profiling.record import Advice, Operator, Profile

SHORT = Operator("aten::add", 200, 800.0, 800.0, phase="forward", flops=1000.0)


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "small_batch"), None)


def test_a_step_of_long_operators_is_no_fault() -> None:
    assert find(make_profile(operators=[multiply(6000.0), SHORT])) is None


def test_a_step_that_waits_for_its_loader_is_the_loaders_fault() -> None:
    steps = make_steps(data_us=90_000.0, loader_wait_us=90_000.0)
    assert find(make_profile(steps, operators=[multiply(8000.0), SHORT])) is None


def test_a_step_that_compiles_is_the_compilers_fault() -> None:
    steps = make_steps(compute_us=99_000.0, recompiled=1, compile_us=90_000.0)
    assert find(make_profile(steps, operators=[multiply(8000.0), SHORT])) is None


def test_timed_steps_that_other_work_disturbed_are_no_fault() -> None:
    profile = make_profile(
        make_steps(compute_us=99_000.0), operators=[multiply(8000.0)], facts={"recorded_step_us": 10_000.0}
    )
    assert find(profile) is None


def test_without_operators_nothing_is_known() -> None:
    assert find(make_profile()) is None


def test_an_accelerators_idle_time_is_not_judged_by_the_host() -> None:
    assert find(make_profile(device="cuda", operators=[SHORT])) is None


def test_compiled_code_counts_as_work() -> None:
    assert (
        find(make_profile(operators=[Operator("CompiledFxGraph", 1, 9000.0, 7000.0, phase="forward"), SHORT])) is None
    )


def test_fixed_cost_and_the_model_are_named() -> None:
    steps = make_steps(data_us=0.0, compute_us=800.0, update_us=200.0)
    advice = find(make_profile(steps, operators=[multiply(100.0, calls=2), SHORT]))
    assert advice is not None
    assert "90% of a step" in advice.title
    assert "2 times as many give 1.8 times" in advice.action  # 2000 / (900 + 2 * 100)
    assert advice.gain_us == pytest.approx(900.0 * 7 / 8)


def test_an_operator_of_unknown_arithmetic_counts_as_far_as_its_inputs_allow() -> None:
    steps = make_steps(data_us=0.0, compute_us=800.0, update_us=200.0)
    layer = Operator("aten::mkldnn_rnn_layer", 1, 900.0, 900.0, phase="forward", shapes="[32, 128, 256], [1024, 256]")
    assert find(make_profile(steps, operators=[layer, SHORT])) is None
    loss = Operator("aten::nll_loss_backward", 1, 900.0, 900.0, phase="backward", shapes="[], [2, 10], [2]")
    assert find(make_profile(steps, operators=[loss, SHORT])) is not None


def test_operators_that_were_interrupted_do_not_count_as_work() -> None:
    steps = make_steps(data_us=0.0, compute_us=800.0, update_us=200.0)
    interrupted = Operator("aten::addmm", 1, 900.0, 900.0, phase="forward", flops=16384.0, bytes=100.0)
    assert find(make_profile(steps, operators=[interrupted, SHORT])) is not None
