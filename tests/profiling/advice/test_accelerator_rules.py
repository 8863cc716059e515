"""host_gaps, small_kernels and unfused_norm, which read kernels of an accelerator."""

from profiling.advice.made_profiles import launch, make_profile
from viaduct.profiling.advice import advise
from viaduct.profiling.record import Advice, Kernel, Profile


def find(name: str, profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == name), None)


def test_a_busy_device_has_no_gaps() -> None:
    kernels = [launch("gemm", 9500.0, 100, "matrix product")]
    assert advise(make_profile(device="cuda", kernels=kernels)) == []


def test_the_cpus_own_operators_are_no_kernels_of_a_device() -> None:
    kernels = [launch("aten::add", 500.0, 100)]
    assert advise(make_profile(device="cpu", kernels=kernels)) == []


def test_idle_time_between_kernels_is_named() -> None:
    kernels = [launch("gemm", 4000.0, 100, "matrix product")]
    advice = find("host_gaps", make_profile(device="cuda", kernels=kernels, kind="recipe"))
    assert advice is not None
    assert advice.gain_us == 5900.0  # 9.9 ms of forward, backward and update
    assert "59% of each step" in advice.title
    assert advice.changes == {"sink": "auto", "mode": "auto"}


def test_the_free_time_that_torch_npu_wrote_counts() -> None:
    table = {"columns": ["Step", "free"], "rows": [[0, "2000.0"], [1, "2200"], [2, ""]]}
    kernels = [launch("MatMulV2", 3000.0, 100, "matrix product")]
    profile = make_profile(device="npu", kind="torch_npu", kernels=kernels, tables={"step_trace_time": table})
    advice = find("host_gaps", profile)
    assert advice is not None
    assert advice.gain_us == 2100.0


def test_short_kernels_are_counted_with_what_starting_one_costs() -> None:
    kernels: list[Kernel] = [
        launch("add", 1200.0, 400),
        launch("mul", 1000.0, 200),
        launch("gemm", 7700.0, 60, "matrix product"),
    ]
    advice = find("small_kernels", make_profile(device="npu", kernels=kernels))
    assert advice is not None
    assert advice.gain_us == 600 * 3.0  # the shortest of them takes 3 µs
    assert "600 kernels of each step" in advice.title


def test_few_short_kernels_are_no_fault() -> None:
    kernels = [launch("add", 100.0, 40), launch("gemm", 9700.0, 60, "matrix product")]
    assert find("small_kernels", make_profile(device="cuda", kernels=kernels)) is None


def test_an_activation_beside_a_normalisation_is_named() -> None:
    kernels = [
        launch("batch_norm_collect_statistics", 3000.0, 50, "normalisation"),
        launch("vectorized_elementwise_kernel", 1000.0, 50, operator="aten::threshold_backward"),
        launch("gemm", 5800.0, 60, "matrix product"),
    ]
    advice = find("unfused_norm", make_profile(device="cuda", kernels=kernels, kind="recipe"))
    assert advice is not None
    assert advice.gain_us == 1000.0
    assert advice.changes == {"kernels": "auto"}
    assert find("unfused_norm", make_profile(device="npu", kernels=kernels)) is None


def test_a_normalisation_with_its_activation_is_no_fault() -> None:
    kernels = [
        launch("fused_norm_relu_kernel", 4000.0, 50, "normalisation"),
        launch("gemm", 5800.0, 60, "matrix product"),
    ]
    assert find("unfused_norm", make_profile(device="cuda", kernels=kernels)) is None
