"""Normalisations whose activation is a kernel of its own."""

from profiling.advice.made_profiles import find_advice, launch, make_profile


def test_an_activation_beside_a_normalisation_is_named() -> None:
    kernels = [
        launch("batch_norm_collect_statistics", 3000.0, 50, "normalisation"),
        launch("vectorized_elementwise_kernel", 1000.0, 50, operator="aten::threshold_backward"),
        launch("gemm", 5800.0, 60, "matrix product"),
    ]
    advice = find_advice("unfused_norm", make_profile(device="cuda", kernels=kernels, kind="recipe"))
    assert advice is not None
    assert advice.gain_us == 1000.0
    assert advice.changes == {"kernels": "auto"}
    assert find_advice("unfused_norm", make_profile(device="npu", kernels=kernels)) is None


def test_a_normalisation_with_its_activation_is_no_fault() -> None:
    kernels = [
        launch("fused_norm_relu_kernel", 4000.0, 50, "normalisation"),
        launch("gemm", 5800.0, 60, "matrix product"),
    ]
    assert find_advice("unfused_norm", make_profile(device="cuda", kernels=kernels)) is None
