"""Grouped convolutions in CUDA C++: blocks that fit a card, and references of the cases."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")

GROUPED = ("grouped_convolution", "grouped_input_gradient", "grouped_weight_gradient")


CPU = torch.device("cpu")


def signature_of(count: int, size: int, per_group: int, stride: int) -> tuple[int | str, ...]:
    out = (size - 1) // stride + 1
    return (count, size, size, out, out, 32 * per_group, 1, 1, per_group, stride, "bfloat16")


@pytest.mark.parametrize("kernel", GROUPED)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("per_group", [4, 8, 16, 32])
def test_grouped_spaces_have_only_blocks_that_fit_a_card(kernel: str, stride: int, per_group: int) -> None:
    from viaduct.kernels.grouped_cuda import BlockShape, make_square_tile, make_window_tile, plan_launch
    from viaduct.kernels.tunable import make_space
    from viaduct.kernels.tunable.grouped import read_layer

    for count, size in ((1, 7), (32, 56), (256, 14)):
        signature = signature_of(count, size, per_group, stride)
        layer, space = read_layer(*signature[:-1]), make_space((kernel, signature), CPU)
        assert 20 < space.size < space.combinations
        square = kernel == "grouped_input_gradient" and stride == 2
        tile = (
            make_square_tile(layer)
            if square
            else make_window_tile(layer, reads_gradient=kernel == "grouped_weight_gradient")
        )
        for point in space.points():
            block_shape = BlockShape(**point)  # type: ignore[arg-type]
            plan = plan_launch(tile, layer, block_shape, torch.empty(1))
            assert plan.shared + 1024 <= 227 * 1024 // block_shape.resident + 1024
            assert block_shape.warps * 32 * block_shape.resident <= 1024
            assert layer.channels % block_shape.slice == 0
            assert plan.rows * plan.strips >= tile.image_rows


@pytest.mark.parametrize("per_group", [4, 16])
@pytest.mark.parametrize("stride", [1, 2])
def test_references_of_grouped_kernels_are_the_gradients_of_a_convolution(per_group: int, stride: int) -> None:
    from viaduct.kernels.tunable import make_case
    from viaduct.kernels.tunable.base import RandomTensors

    signature = (*signature_of(2, 7, per_group, stride)[:-1], "float32")
    channels, out = 32 * per_group, (7 - 1) // stride + 1
    random = RandomTensors(CPU, torch.float32)
    weight = (random.draw_images(channels, per_group, 3, 3) * 0.2).double().requires_grad_()
    x = random.draw_images(2, channels, 7, 7).double().requires_grad_()
    y = F.conv2d(x, weight, stride=stride, padding=1, groups=32)
    gradient = x.detach() if stride == 1 else random.draw_images(2, channels, out, out).double()
    expected = dict(zip(GROUPED, (y, *torch.autograd.grad(y, (x, weight), gradient, retain_graph=True)), strict=True))
    if stride == 1:  # the case of the weights draws a gradient of its own
        second = random.draw_images(2, channels, out, out).double()
        expected["grouped_weight_gradient"] = torch.autograd.grad(y, weight, second)[0]
    for kernel in GROUPED:
        (found,) = make_case((kernel, signature), CPU).reference()
        torch.testing.assert_close(found, expected[kernel].detach())
