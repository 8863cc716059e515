from dataclasses import replace

from profiling.advice.made_profiles import advise, launch, make_profile, make_steps, multiply, read_value
from viaduct.profiling.measures import make_closing_sentence
from viaduct.profiling.record import Advice, Operator, Profile


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "synchronisation"), None)


def test_logging_every_second_step_is_no_fault() -> None:
    assert find(make_profile(operators=[multiply(8500.0), read_value(calls=0.5)])) is None


def test_an_optimizer_that_reads_its_own_counters_is_no_fault() -> None:
    step = Operator("aten::addcdiv_", 8, 40.0, 40.0, phase="update", location="train.py:50")
    assert find(make_profile(operators=[step, read_value(calls=8, location="train.py:50")])) is None


def test_a_gradient_scaler_that_looks_for_overflow_is_no_fault() -> None:
    step = Operator("aten::add_", 6, 40.0, 40.0, phase="update", location="train.py:51")
    assert find(make_profile(operators=[step, read_value(location="train.py:51")])) is None


def test_lines_of_an_optimizers_step_are_known_by_its_operators() -> None:
    rows = [
        Operator("aten::_foreach_add_", 1, 1.0, 1.0, phase="update", location="train.py:9"),
        Operator("aten::mm", 1, 1.0, 1.0, phase="update", location="train.py:10"),
        Operator("aten::add_", 1, 1.0, 1.0, phase="forward", location="train.py:11"),
    ]
    reads = [read_value(location=row.location) for row in rows]
    advice = find(make_profile(operators=[*rows, *reads]))
    assert advice is not None
    assert sorted(advice.locations) == ["train.py:10", "train.py:11"]


def test_values_that_a_loader_reads_are_no_fault() -> None:
    assert find(make_profile(operators=[read_value(calls=64, phase="data")])) is None


def test_copying_a_batch_to_a_busy_device_is_no_fault() -> None:
    copy = Operator(
        "aten::copy_", 1, 3000.0, 3000.0, shapes="[64, 3, 32, 32]", synchronises=True, location="train.py:30"
    )
    busy = [launch("gemm", 9800.0, 50, "matrix product")]
    assert find(make_profile(make_steps(), device="cuda", operators=[copy], kernels=busy)) is None
    idle = [launch("gemm", 6000.0, 50, "matrix product")]
    advice = find(make_profile(make_steps(), device="cuda", operators=[copy], kernels=idle))
    assert advice is not None
    assert advice.action.startswith("Copy batches from pinned memory")


def test_operators_that_do_not_wait_are_no_fault() -> None:
    assert find(make_profile(operators=[replace(read_value(), synchronises=False)])) is None


def test_the_line_and_the_calls_are_named() -> None:
    inner = replace(read_value(calls=2), name="aten::_local_scalar_dense", total_us=4.0)
    advice = find(make_profile(operators=[multiply(8500.0), read_value(calls=2), inner]))
    assert advice is not None
    assert "2 times in each step, at train.py:41" in advice.title  # the operator inside is the same wait
    assert advice.locations == ("train.py:41",)


def test_on_the_cpu_it_is_a_remark_without_a_gain() -> None:
    profile = make_profile(operators=[multiply(8500.0), read_value()])
    advice = find(profile)
    assert advice is not None
    assert advice.title.startswith("For accelerators: the host would wait for the device 1 time")
    assert advice.gain_us is None
    assert "On this CPU they cost 5 µs of a step" in advice.evidence[-1]
    assert "on an accelerator each of them waits" in advice.evidence[-1]
    assert make_closing_sentence(replace(profile, advice=advise(profile))) == "Nothing else stands out"


def test_on_an_accelerator_the_gain_is_no_more_than_its_idle_time() -> None:
    wait = replace(read_value(), total_us=7000.0)
    kernels = [launch("gemm", 9800.0, 50, "matrix product")]
    advice = find(make_profile(make_steps(), device="cuda", operators=[wait], kernels=kernels))
    assert advice is not None
    assert advice.gain_us == 200.0


def test_without_kernels_of_the_accelerator_the_gain_is_not_known() -> None:
    advice = find(make_profile(make_steps(), device="npu", operators=[read_value()]))
    assert advice is not None
    assert advice.gain_us is None
