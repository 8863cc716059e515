from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from viaduct.profiling.flop_formulas import Call, Work, broadcast_shapes, count_work


def describe_call(name: str, *arguments: Any) -> Call:
    """Return a call as a trace has it."""
    is_tensor = [isinstance(argument, torch.Tensor) for argument in arguments]
    pairs = list(zip(arguments, is_tensor, strict=True))
    return Call(
        f"aten::{name}",
        [list(argument.shape) if tensor else [] for argument, tensor in pairs],
        [str(argument.dtype).removeprefix("torch.") if tensor else "Scalar" for argument, tensor in pairs],
        ["" if tensor else str(argument) for argument, tensor in pairs],
    )


def count_with_torch(work: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def test_nothing_is_reported_of_an_unknown_operator() -> None:
    assert count_work(Call("mine::magic", [[3, 4]], ["float32"], [""])) == Work(None, None)


@pytest.mark.parametrize("values", [[], ["", "", "", "[1, 1]"], ["", "", "", "nonsense", "[0, 0]", "[1, 1]", "False"]])
def test_nothing_is_reported_of_a_convolution_without_its_settings(values: list[str]) -> None:
    assert (
        count_work(Call("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3], []], ["float32", "float32", ""], values))
        == Work()
    )


def test_nothing_is_reported_of_bytes_in_an_unknown_dtype() -> None:
    assert count_work(Call("aten::mm", [[2, 3], [3, 4]], ["mystery", "mystery"], ["", ""])) == Work()


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 4)])
def test_a_convolution_counts_as_torch_counts_it(stride: int, padding: int, dilation: int, groups: int) -> None:
    images, weight = torch.randn(2, 8, 15, 14), torch.randn(12, 8 // groups, 3, 3)
    settings = ([stride] * 2, [padding] * 2, [dilation] * 2)
    made = functional.conv2d(images, weight, None, *settings, groups)
    expected = count_with_torch(lambda: functional.conv2d(images, weight, None, *settings, groups))
    found = count_work(describe_call("convolution", images, weight, None, *settings, False, [0, 0], groups))
    assert found.flops == expected
    assert found.bytes == 4 * (images.numel() + weight.numel() + made.numel())
    stride_, padding_, dilation_ = settings
    assert (
        count_work(describe_call("mkldnn_convolution", images, weight, None, padding_, stride_, dilation_, groups))
        == found
    )


@pytest.mark.parametrize(
    ("mask", "times"), [([True, True, True], 2), ([False, True, True], 1), ([True, False, False], 1)]
)
def test_a_convolution_backward_costs_a_forward_for_each_gradient(mask: list[bool], times: int) -> None:
    images, weight, gradient = torch.randn(2, 8, 9, 9), torch.randn(4, 4, 3, 3), torch.randn(2, 4, 9, 9)
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 2, mask)
    found = count_work(describe_call("convolution_backward", gradient, images, weight, [4], *settings))
    assert found.flops == times * 2 * gradient.numel() * prod(weight.shape[1:])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("mm", [(5, 6), (6, 7)]), ("addmm", [(7,), (5, 6), (6, 7)]), ("bmm", [(3, 5, 6), (3, 6, 7)]),
     ("baddbmm", [(3, 5, 7), (3, 5, 6), (3, 6, 7)])],
)  # fmt: skip
def test_a_product_counts_as_torch_counts_it(name: str, shapes: list[tuple[int, ...]]) -> None:
    tensors = [torch.randn(shape) for shape in shapes]
    made = getattr(torch, name)(*tensors)
    found = count_work(describe_call(name, *tensors))
    assert found.flops == count_with_torch(lambda: getattr(torch, name)(*tensors))
    assert found.bytes == 4 * (sum(tensor.numel() for tensor in tensors) + made.numel())


def test_half_the_width_is_half_the_bytes() -> None:
    wide, narrow = ([torch.ones(64, 64, dtype=dtype)] * 2 for dtype in (torch.float32, torch.bfloat16))
    wide_work, narrow_work = count_work(describe_call("add", *wide)), count_work(describe_call("add", *narrow))
    assert (wide_work.flops, wide_work.bytes) == (narrow_work.flops, 2 * (narrow_work.bytes or 0))


def test_results_are_counted_in_their_own_dtype() -> None:
    mask, values = torch.ones(64, 64, dtype=torch.bool), torch.ones(64, 64)
    for name, arguments in (("where", (mask, values, values)), ("eq", (values, values)), ("mul", (mask, values))):
        made = getattr(torch, name)(*arguments)
        expected = sum(argument.nbytes for argument in arguments) + made.nbytes
        assert count_work(describe_call(name, *arguments)).bytes == expected


def test_a_pooling_writes_what_torch_writes() -> None:
    images = torch.randn(2, 3, 13, 11)
    made, indices = functional.max_pool2d(images, 3, 2, 1, return_indices=True)
    found = count_work(describe_call("max_pool2d_with_indices", images, [3, 3], [2, 2], [1, 1], [1, 1], False))
    assert found.bytes == images.nbytes + made.nbytes + indices.nbytes


def test_a_normalisation_reads_its_inputs_and_writes_its_result_once() -> None:
    images, weight = torch.randn(2, 3, 8, 8), torch.randn(3)
    forward = count_work(describe_call("native_batch_norm", images, weight, weight, weight, weight, True, 0.1, 1e-5))
    backward = count_work(describe_call("native_batch_norm_backward", images, images, weight, weight))
    assert (forward.bytes, forward.flops) == (2 * images.nbytes + 4 * weight.nbytes, 8 * images.numel())
    assert (backward.bytes, backward.flops) == (3 * images.nbytes + 2 * weight.nbytes, 10 * images.numel())


def test_shapes_broadcast_as_in_torch() -> None:
    shapes = [[4, 1, 3], [5, 1], [], [1, 1, 1, 1]]
    tensors = torch.broadcast_tensors(*map(torch.empty, shapes))  # type: ignore[no-untyped-call]
    assert broadcast_shapes(shapes) == list(tensors[0].shape)


def test_an_update_over_lists_has_operations_but_no_bytes() -> None:
    call = Call("aten::_fused_sgd_", [[[10, 10], [5]], [[10, 10], [5]]], ["TensorList", "TensorList"], ["", ""])
    assert count_work(call) == Work(4.0 * 105, None, "optimizer")
