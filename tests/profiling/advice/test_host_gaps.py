"""Time in which the device waits for the host."""

from profiling.advice.made_profiles import advise, find_advice, launch, make_profile


def test_a_busy_device_has_no_gaps() -> None:
    kernels = [launch("gemm", 9500.0, 100, "matrix product")]
    assert advise(make_profile(device="cuda", kernels=kernels)) == []


def test_the_cpus_own_operators_are_no_kernels_of_a_device() -> None:
    kernels = [launch("aten::add", 500.0, 100)]
    assert advise(make_profile(device="cpu", kernels=kernels)) == []


def test_idle_time_between_kernels_is_named() -> None:
    kernels = [launch("gemm", 4000.0, 100, "matrix product")]
    advice = find_advice("host_gaps", make_profile(device="cuda", kernels=kernels, kind="recipe"))
    assert advice is not None
    assert advice.gain_us == 5900.0  # 9.9 ms of forward, backward and update
    assert "59% of each step" in advice.title
    assert advice.changes == {"sink": "auto", "mode": "auto"}


def test_the_free_time_that_torch_npu_wrote_counts() -> None:
    table = {"columns": ["Step", "free"], "rows": [[0, "2000.0"], [1, "2200"], [2, ""]]}
    kernels = [launch("MatMulV2", 3000.0, 100, "matrix product")]
    profile = make_profile(device="npu", kind="torch_npu", kernels=kernels, tables={"step_trace_time": table})
    advice = find_advice("host_gaps", profile)
    assert advice is not None
    assert advice.gain_us == 2100.0
    assert advice.evidence[0] == "Of the 10 ms of a step, the device has nothing to do for 2.1 ms."
