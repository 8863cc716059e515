from __future__ import annotations

from typing import Any

from profiling.traces import annotate, launch, make_event, read_trace
from viaduct.profiling.kernel_rows import list_kernels

PRODUCT: dict[str, Any] = {
    "Input_Dims": [[8, 16], [16, 4]],
    "Input_type": ["float", "float"],
    "Concrete_Inputs": ["", ""],
}


def test_wrappers_and_allocations_are_no_kernels_on_the_cpu() -> None:
    events = [
        make_event("aten::matmul", 0, 100),
        make_event("aten::mm", 10, 80, **PRODUCT),
        make_event("aten::empty", 15, 10),
    ]
    (kernel,) = list_kernels(read_trace(*events))
    assert (kernel.name, kernel.kind, kernel.time_us, kernel.operator) == (
        "aten::mm",
        "matrix product",
        70,
        "aten::matmul",
    )
    assert (kernel.dtype, kernel.flops) == ("float32", 2 * 8 * 16 * 4)


def test_whatever_an_optimizer_runs_is_the_optimizers() -> None:
    events = [
        annotate("Optimizer.step#SGD.step", 0, 50),
        make_event("aten::add_", 5, 9),
        make_event("aten::add_", 60, 9),
    ]
    assert sorted(kernel.kind for kernel in list_kernels(read_trace(*events))) == ["elementwise", "optimizer"]


def test_compiled_code_is_a_kernel_with_what_is_not_divided_further() -> None:
    events = [make_event("CompiledFunction", 0, 100), make_event("aten::mm", 10, 30, **PRODUCT)]
    assert {kernel.name: kernel.time_us for kernel in list_kernels(read_trace(*events))} == {
        "CompiledFunction": 70, "aten::mm": 30,
    }  # fmt: skip


def test_work_is_not_given_to_one_of_two_kernels() -> None:
    operator = make_event("aten::mm", 0, 50, External_id=1, **PRODUCT)
    both = [*launch(1, 5, "gemm", 60, 20), *launch(2, 10, "splitKreduce_kernel", 90, 5)]
    assert [kernel.flops for kernel in list_kernels(read_trace(operator, *both, device="cuda"))] == [None, None]
    (alone,) = list_kernels(read_trace(operator, *both[:2], device="cuda"))
    assert alone.flops == 1024


def test_a_kernel_counts_for_the_step_that_launched_it() -> None:
    late = launch(1, 990, "late_kernel", 1500, 20)
    foreign = launch(2, 1010, "foreign_kernel", 1600, 20)
    assert [kernel.name for kernel in list_kernels(read_trace(*late, *foreign, device="cuda"))] == ["late_kernel"]


def test_a_replayed_graph_has_kernels_without_operators() -> None:
    launched = make_event("cudaGraphLaunch", 5, 10, "cuda_runtime", correlation=3)
    kernels = [make_event("sm90_xmma_fprop_implicit_gemm", start, 10, "kernel", 7, correlation=3) for start in (50, 70)]
    (row,) = list_kernels(read_trace(launched, *kernels, device="cuda"))
    assert (row.calls, row.kind, row.operator) == (2, "convolution", "")
