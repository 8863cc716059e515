"""Kernels that are shorter than what starting one costs."""

from profiling.advice.made_profiles import find_advice, launch, make_profile
from viaduct.profiling.record import Kernel


def test_short_kernels_are_counted_with_what_starting_one_costs() -> None:
    kernels: list[Kernel] = [
        launch("add", 1200.0, 400),
        launch("mul", 1000.0, 200),
        launch("gemm", 7700.0, 60, "matrix product"),
    ]
    advice = find_advice("small_kernels", make_profile(device="npu", kernels=kernels))
    assert advice is not None
    assert advice.gain_us == 600 * 3.0  # the shortest of them takes 3 µs
    assert "600 kernels of each step" in advice.title


def test_few_short_kernels_are_no_fault() -> None:
    kernels = [launch("add", 100.0, 40), launch("gemm", 9700.0, 60, "matrix product")]
    assert find_advice("small_kernels", make_profile(device="cuda", kernels=kernels)) is None
