"""Figures that advice rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from viaduct.profiling.figures import (
    Convolution,
    Figures,
    MatrixProduct,
    find_float_dtype,
    is_convolution,
    is_matrix_product,
    mean_without_largest,
    parse_convolution,
    parse_matrix_product,
    parse_shapes,
    show_names,
    show_time,
    sum_by_owner,
)
from viaduct.profiling.record import RECORDING, Collective, Operator, Profile, Sample

from .advice.made_profiles import convolve, launch, make_profile, make_steps, multiply


def make_figures(**parts: Any) -> Figures:
    return Figures(make_profile(**parts))


def test_without_steps_nothing_is_a_share_of_anything() -> None:
    figures = make_figures(steps=[])
    assert (figures.iteration_us, figures.share_of_step(100.0), figures.loader_waits) == (0.0, 0.0, {})
    assert (figures.data_tails, figures.host_time_between_steps, figures.communication_us) == ({}, (0.0, 0), 0.0)
    assert not figures.is_worthwhile(1e9)
    assert figures.processor_load is None


def test_a_single_accident_does_not_make_a_mean() -> None:
    assert mean_without_largest([1.0, 1.0, 1.0, 1.0, 1000.0]) == 1.0
    assert mean_without_largest([1.0, 3.0]) == 2.0
    assert mean_without_largest([]) == 0.0


def test_waits_for_data_are_those_of_each_rank_with_a_loader() -> None:
    steps = [*make_steps(rank=0, loader_wait_us=10.0), *make_steps(rank=1, loader_wait_us=50.0), *make_steps(rank=2)]
    figures = make_figures(steps=steps)
    assert figures.loader_waits == {0: 10.0, 1: 50.0}
    assert figures.name_rank(1) == " on rank 1"
    assert make_figures().name_rank(0) == ""


def test_time_between_steps_that_operators_or_the_loader_took_is_no_gap_of_the_host() -> None:
    steps = make_steps(data_us=1000.0, loader_wait_us=300.0)
    rows = [Operator("aten::copy_", 1, 200.0, 200.0, phase="data"), multiply(8000.0)]
    assert make_figures(steps=steps, operators=rows).host_time_between_steps == (pytest.approx(500.0), 0)


def test_collectives_are_those_of_the_rank_that_waits_least_for_others() -> None:
    def communicate(rank: int, exposed_us: float, interrupted_by: str = "") -> list[Any]:
        collective = Collective("all_reduce", 0.0, 4000.0, exposed_us=exposed_us)
        steps = make_steps(rank=rank, interrupted_by=interrupted_by)
        return [replace(step, collectives=(collective,)) for step in steps]

    figures = make_figures(steps=[*communicate(0, 3000.0), *communicate(1, 1000.0)])
    assert figures.exposed_shares == {0: pytest.approx(0.3), 1: pytest.approx(0.1)}
    assert figures.communication_us == pytest.approx(1000.0)
    recorded = [*make_steps(), *communicate(0, 2000.0, RECORDING), *communicate(0, 9000.0, f"{RECORDING}, evaluation")]
    assert make_figures(steps=recorded).exposed_shares == {0: pytest.approx(0.2)}


def test_kernels_of_one_rank_count_without_communication() -> None:
    rows = [launch("gemm", 5.0, 1), launch("nccl", 9.0, 1, "communication"), replace(launch("gemm", 7.0, 1), rank=1)]
    assert [row.time_us for row in make_figures(kernels=rows).kernels] == [5.0]


def test_the_load_is_that_of_cores_alone() -> None:
    samples = [Sample(0.0, {"cpu 0 %": 100.0, "cpu 1 %": 50.0, "gpu 0 %": 3.0}), Sample(1.0, {"memory MiB": 7.0})]
    assert make_figures(samples=samples).processor_load == 0.75


def test_cells_that_are_no_numbers_are_left_out_of_a_column() -> None:
    figures = make_figures(tables={"steps": {"columns": ["a", "b"], "rows": [[1, "2.5"], [2, "N/A"], [3, None]]}})
    assert figures.read_column("steps", "b") == [2.5]
    assert figures.read_column("steps", "c") == figures.read_column("other", "b") == []


def test_the_backward_pass_is_two_thirds_where_no_operator_tells() -> None:
    assert make_figures().backward_us == pytest.approx(6000.0)
    rows = [multiply(100.0), replace(multiply(300.0), phase="backward"), replace(multiply(500.0), phase="update")]
    assert make_figures(operators=rows).backward_us == pytest.approx(6750.0)


@pytest.mark.parametrize(
    ("name", "product", "convolution"),
    [
        ("aten::convert_element_type", False, False),
        ("aten::_conv_depthwise2d", False, True),
        ("aten::mkldnn_convolution", False, True),
        ("aten::addmm", True, False),
        ("aten::mm", True, False),
        ("aten::comm_hook", False, False),
        ("BatchMatMulV2", True, False),
    ],
)
def test_products_and_convolutions_are_known_by_name(name: str, product: bool, convolution: bool) -> None:
    operator = Operator(name, 1, 1.0, 1.0)
    assert (is_matrix_product(operator), is_convolution(operator)) == (product, convolution)


def test_of_nested_operators_those_with_counted_work_are_heavy() -> None:
    outer, inner = replace(multiply(100.0), flops=None), multiply(90.0)
    assert make_figures(operators=[outer, inner]).heavy_operators == [inner]
    assert make_figures(operators=[outer]).heavy_operators == [outer]


def test_a_product_is_read_from_its_shapes() -> None:
    def parse(shapes: str) -> MatrixProduct | None:
        return parse_matrix_product(Operator("aten::mm", 1, 1.0, 1.0, shapes=shapes, dtypes="float32, float32"))

    assert parse("[3, 4], [5, 6]") is None
    assert parse("[3, 4]") is None
    assert parse_matrix_product(multiply(1.0)) == MatrixProduct(256, 512, 1024, "float32")
    assert parse("[2, 3, 4], [4, 6]") == MatrixProduct(6, 4, 6, "float32")
    assert parse("[3, 4], [6, 4]") == MatrixProduct(3, 4, 6, "float32"), "the weight of a linear layer"


@pytest.mark.parametrize(("side", "stride", "padding"), [(28, 1, 1), (26, 1, 0), (14, 2, 1), (13, 2, 0)])
def test_stride_and_padding_follow_from_the_counted_work(side: int, stride: int, padding: int) -> None:
    flops = 2 * 16 * 64 * side * side * 64 * 9
    found = parse_convolution(convolve(1.0, calls=3, flops=3.0 * flops))
    assert found == Convolution((16, 64, 28, 28), (64, 64, 3, 3), stride, padding, 1, "float32")


def test_a_convolution_that_cannot_be_is_not_made_up() -> None:
    assert parse_convolution(convolve(1.0, flops=12345.0)) is None
    assert parse_convolution(convolve(1.0, flops=None)) is None
    assert parse_convolution(replace(convolve(1.0), name="aten::convolution_backward")) is None
    assert parse_convolution(replace(convolve(1.0), shapes="[16, 3, 28, 28], [64, 64, 3, 3]")) is None


def test_shapes_with_names_in_them_are_left_out() -> None:
    assert parse_shapes("[32, 64], [], [a, 2], [7]") == [(32, 64), (), (7,)]
    assert find_float_dtype(Operator("x", 1, 1.0, 1.0, dtypes="int64, bfloat16, float32")) == "bfloat16"
    assert find_float_dtype(Operator("x", 1, 1.0, 1.0, dtypes="int64")) == ""


def test_sums_are_those_of_modules_else_of_lines_else_of_names() -> None:
    rows = [
        Operator("aten::mm", 1, 1.0, 2.0, module="layer1", location="train.py:3"),
        Operator("aten::add", 1, 1.0, 3.0, module="layer1"),
        Operator("aten::add", 1, 1.0, 9.0, location="train.py:3"),
        Operator("aten::add", 1, 1.0, 1.0),
    ]
    sums = sum_by_owner(rows, lambda row: row.self_us)
    assert list(sums.items()) == [("train.py:3", 9.0), ("layer1", 5.0), ("aten::add", 1.0)]


def test_times_and_names_are_short() -> None:
    assert [show_time(time) for time in (420.0, 61_300.0, 2.5e6)] == ["420 µs", "61.3 ms", "2.5 s"]
    assert show_names(["a", "", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert show_names(["a"]) == "a"


def test_the_profile_of_a_device_returns_before_its_kernels_have_run() -> None:
    profile: Profile = make_profile(device="npu")
    assert Figures(profile).on_accelerator
    assert not make_figures().on_accelerator
