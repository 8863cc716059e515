"""Strided convolutions over a single pixel, whose weights' gradient oneDNN leaves unwritten in bf16."""

import pytest
import torch
from torch import nn

from viaduct.models.padding import SameConv2d
from viaduct.training.single_pixels import guard_single_pixels


def dirty(shape: torch.Size) -> None:
    """Memory of this size that is handed out next holds NaN."""
    junk = [torch.full(shape, float("nan"), dtype=torch.bfloat16) for _ in range(20)]
    del junk


LAYERS = [nn.Conv2d(64, 64, 3, 2, 1, bias=False), SameConv2d(64, 64, 3, 2), SameConv2d(64, 64, 7, 2, groups=4)]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_gradient_is_whole_whatever_was_in_memory(layer: nn.Conv2d) -> None:
    x = torch.randn(12, 64, 1, 1)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    true = layer.weight.grad.clone()
    guard_single_pixels(layer)
    for _ in range(10):
        layer.weight.grad = None
        dirty(layer.weight.shape)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        y.float().sum().backward()
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(layer.weight.grad, true, rtol=2e-2, atol=2e-2)


def test_a_bias_is_added() -> None:
    layer = nn.Conv2d(8, 8, 3, 2, 1)
    x = torch.randn(2, 8, 1, 1)
    before = layer(x)
    guard_single_pixels(layer)
    torch.testing.assert_close(layer(x), before)


def test_padding_that_is_not_zeros_counts() -> None:
    layer = nn.Conv2d(8, 8, 3, 2, 1, padding_mode="replicate")
    x = torch.randn(2, 8, 1, 1)
    before = layer(x)
    guard_single_pixels(layer)
    assert torch.equal(layer(x), before)


def test_other_images_go_the_usual_way() -> None:
    layer = nn.Conv2d(8, 8, 3, 2, 1, bias=False)
    x = torch.randn(2, 8, 5, 5)
    before = layer(x)
    guard_single_pixels(layer)
    assert torch.equal(layer(x), before)


@pytest.mark.parametrize("padding", [0, "valid"])
def test_a_kernel_that_meets_no_pixel_is_refused_as_ever(padding: int | str) -> None:
    layer = nn.Conv2d(8, 8, 3, 2, padding, bias=False)
    guard_single_pixels(layer)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        layer(torch.randn(2, 8, 1, 1))
