from __future__ import annotations

from typing import Any

import pytest
import torch

from profiling.traces import annotate, launch, make_event, read_trace
from viaduct.profiling.operator_rows import list_operators, name_layout

CONVOLUTION: dict[str, Any] = {
    "Input_Dims": [[2, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []],
    "Input_Strides": [[192, 1, 24, 3], [27, 1, 9, 3], [], [], [], [], [], [], []],
    "Input_type": ["c10::BFloat16", "c10::BFloat16", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
    "Concrete_Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
}


def test_work_of_nested_operators_is_counted_once() -> None:
    outer, inner = (
        make_event("aten::convolution", 0, 90, **CONVOLUTION),
        make_event("aten::_convolution", 5, 80, **CONVOLUTION),
    )
    rows = {row.name: row for row in list_operators(read_trace(outer, inner))}
    assert rows["aten::convolution"].flops is None
    assert rows["aten::_convolution"].flops == 2 * (2 * 4 * 8 * 8) * 27


def test_operators_of_different_modules_or_shapes_are_different_rows() -> None:
    first, second = annotate("viaduct.module:a", 0, 10), annotate("viaduct.module:b", 20, 10)
    calls = [make_event("aten::mm", start, 5, Input_Dims=[[2, 2]], Input_type=["float"]) for start in (1, 21, 40)]
    other = make_event("aten::mm", 50, 5, Input_Dims=[[3, 3]], Input_type=["float"])
    assert len(list_operators(read_trace(first, second, *calls, other))) == 4


def test_what_does_not_come_in_every_step_is_a_mean() -> None:
    calls = [make_event("aten::add", start, 6) for start in (10, 20, 1010, 4010)]
    (row,) = list_operators(read_trace(*calls, steps=3))
    assert (row.calls, row.total_us, row.self_us, row.device_us) == (1.0, 6.0, 6.0, None)


def test_one_slow_step_does_not_move_the_times() -> None:
    calls = [make_event("aten::add", start, took) for start, took in ((10, 6), (20, 1), (1010, 900), (2010, 8))]
    (row,) = list_operators(read_trace(*calls, steps=3))
    assert (row.total_us, row.self_us) == (8, 8)


def test_a_row_says_shapes_dtypes_and_layout() -> None:
    (row,) = list_operators(read_trace(make_event("aten::convolution", 0, 90, **CONVOLUTION)))
    assert (row.shapes, row.dtypes) == ("[2, 3, 8, 8], [4, 3, 3, 3]", "bfloat16, bfloat16")
    assert row.layout == "channels_last"


def test_a_list_of_tensors_is_reported_by_its_size() -> None:
    (row,) = list_operators(
        read_trace(make_event("aten::cat", 0, 9, Input_Dims=[[[2, 3], [4]]], Input_type=["TensorList"]))
    )
    assert row.shapes == "2 tensors with 10 values"


@pytest.mark.parametrize("shape", [(2, 5, 1, 1), (3, 1, 4, 4)])
def test_a_tensor_in_both_layouts_has_no_layout_name(shape: tuple[int, ...]) -> None:
    tensor = torch.empty(shape)
    assert name_layout(list(shape), list(tensor.stride())) == ""


def test_layouts_are_named_as_torch_names_them() -> None:
    tensor = torch.empty(2, 3, 4, 5)
    last, turned = tensor.contiguous(memory_format=torch.channels_last), tensor.transpose(2, 3)
    layouts = [name_layout(list(each.shape), list(each.stride())) for each in (tensor, last, turned)]
    assert layouts == ["contiguous", "channels_last", "other"]


def test_values_that_the_loader_and_the_optimizer_read_are_no_synchronisation() -> None:
    events = [
        annotate("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 50),
        make_event("aten::_local_scalar_dense", 10, 5),
        annotate("Optimizer.step#Adam.step", 100, 50),
        make_event("aten::_local_scalar_dense", 110, 5),
    ]
    assert not any(row.synchronises for row in list_operators(read_trace(*events)))


def test_reading_a_value_on_the_cpu_is_where_an_accelerator_would_wait() -> None:
    rows = list_operators(read_trace(make_event("aten::item", 0, 9), make_event("aten::_local_scalar_dense", 1, 5)))
    assert {row.name: row.synchronises for row in rows} == {"aten::item": False, "aten::_local_scalar_dense": True}


def test_a_copy_to_the_host_synchronises_although_a_cpu_copies_nothing() -> None:
    calls = [
        make_event("<built-in method cpu of Tensor object at 0x7f>", 0, 9, category="python_function"),
        make_event("<built-in method to of Tensor object at 0x7f>", 20, 9, category="python_function"),
    ]
    rows = list_operators(read_trace(*calls, make_event("aten::to", 1, 5), make_event("aten::_to_copy", 21, 5)))
    assert {row.name: row.synchronises for row in rows} == {"aten::to": True, "aten::_to_copy": False}


def test_on_cuda_only_what_waited_synchronises() -> None:
    events = [
        make_event("aten::_local_scalar_dense", 0, 50, External_id=1),  # of a tensor on the host
        make_event("aten::_local_scalar_dense", 100, 50, External_id=2, Input_Dims=[[1]], Input_type=["float"]),
        make_event("cudaStreamSynchronize", 110, 30, "cuda_runtime", correlation=5),
        make_event("cudaDeviceSynchronize", 300, 30, "cuda_runtime", correlation=6),
    ]
    rows = list_operators(read_trace(*events, device="cuda"))
    assert sorted((row.name, row.shapes) for row in rows if row.synchronises) == [
        ("aten::_local_scalar_dense", "[1]"),
        ("cudaDeviceSynchronize", ""),
    ]


def test_an_operator_has_the_time_of_the_kernels_that_it_launched_itself() -> None:
    events = [
        make_event("aten::linear", 0, 50, External_id=1),
        make_event("aten::addmm", 5, 40, External_id=2),
        *launch(9, 10, "sm90_gemm", 2000, 70, External_id=2),
    ]
    rows = {row.name: row.device_us for row in list_operators(read_trace(*events, device="cuda"))}
    assert rows == {"aten::linear": 0.0, "aten::addmm": 70.0}


def test_without_kernels_nothing_is_reported_of_the_device() -> None:
    (row,) = list_operators(read_trace(make_event("aten::add", 0, 9), device="npu"))
    assert row.device_us is None
