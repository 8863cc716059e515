"""SAME padding against TensorFlow's own operators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from viaduct.models.padding import (
    SameAveragePool2d,
    SameConv2d,
    SameMaxPool2d,
    _average_pool_padded,
    average_pool_same,
    max_pool_same,
    same_padding,
)

KERNELS = [1, 2, 3, 5, 7]
STRIDES = [1, 2, 3]
SIZES = [(8, 8), (7, 7), (8, 7), (5, 12), (1, 2)]


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow", reason="checks padding against TensorFlow; install viaduct[tf]")


def random_images(height: int, width: int) -> Tensor:
    """All negative, so that a pool which pads with zeros is found out."""
    generator = torch.Generator().manual_seed(height * 100 + width)
    images = -torch.rand(2, 6, height, width, generator=generator) - 0.5
    return images.to(memory_format=torch.channels_last)


def from_nhwc(result) -> Tensor:
    return torch.from_numpy(result.numpy()).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "expected"),
    [
        (224, 7, 2, (2, 3)),
        (112, 3, 2, (0, 1)),
        (111, 3, 2, (1, 1)),
        (111, 2, 2, (0, 1)),
        (56, 1, 2, (0, 0)),
        (56, 2, 2, (0, 0)),
        (56, 3, 1, (1, 1)),
        (56, 2, 1, (0, 1)),
    ],
)
def test_known_cases(size: int, kernel: int, stride: int, expected: tuple[int, int]) -> None:
    assert same_padding(size, kernel, stride) == expected


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_max_pool_is_tensorflows(tf, kernel: int, stride: int) -> None:
    for height, width in SIZES:
        images = random_images(height, width)
        expected = tf.nn.max_pool2d(images.permute(0, 2, 3, 1).numpy(), kernel, stride, "SAME")
        torch.testing.assert_close(max_pool_same(images, kernel, stride), from_nhwc(expected), rtol=0, atol=0)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_average_pool_is_tensorflows(tf, kernel: int, stride: int) -> None:
    for height, width in SIZES:
        images = random_images(height, width)
        expected = tf.nn.avg_pool2d(images.permute(0, 2, 3, 1).numpy(), kernel, stride, "SAME")
        torch.testing.assert_close(average_pool_same(images, kernel, stride), from_nhwc(expected))


def test_average_at_an_edge_is_over_real_cells_only() -> None:
    ones = torch.ones(1, 1, 4, 5)
    assert torch.equal(average_pool_same(ones, 3, 1), ones)


@pytest.mark.parametrize(("kernel", "stride"), [((1, 7), (1, 2)), ((7, 1), (2, 1)), ((1, 7), (1, 1)), ((7, 1), (1, 1))])
def test_rows_and_columns_are_padded_apart(kernel: tuple[int, int], stride: tuple[int, int]) -> None:
    # TensorFlow's convolution on a CPU takes one stride for both: stride 1, then every second row or column.
    convolution = SameConv2d(6, 4, kernel, stride)
    for height, width in SIZES:
        images = random_images(height, width)
        (top, bottom), (left, right) = (
            same_padding(size, *each)
            for size, each in zip((height, width), zip(kernel, stride, strict=True), strict=True)
        )
        padded = torch.nn.functional.pad(images, (left, right, top, bottom))
        expected = torch.nn.functional.conv2d(padded, convolution.weight)[:, :, :: stride[0], :: stride[1]]
        result = convolution(images)
        assert result.shape[2:] == (-(-height // stride[0]), -(-width // stride[1]))
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_convolution_is_tensorflows(tf, kernel: int, stride: int) -> None:
    convolution = SameConv2d(6, 4, kernel, stride)
    weights_HWIO = convolution.weight.detach().permute(2, 3, 1, 0).numpy()
    for height, width in SIZES:
        images = random_images(height, width)
        expected = tf.nn.conv2d(images.permute(0, 2, 3, 1).numpy(), weights_HWIO, stride, "SAME")
        with torch.no_grad():
            torch.testing.assert_close(convolution(images), from_nhwc(expected), rtol=1e-5, atol=1e-5)


def test_groups_see_only_their_own_channels() -> None:
    convolution = SameConv2d(6, 6, 3, stride=2, groups=3)
    images = random_images(8, 8)
    before = convolution(images)
    images[:, :2] += 1
    changed = (convolution(images) != before).any(dim=(0, 2, 3))
    assert changed.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("layer", [SameConv2d(6, 4, 3, 2), SameMaxPool2d(3, 2), SameAveragePool2d(3, 1)])
@pytest.mark.parametrize("size", [8, 9])
def test_layers_keep_channels_last(layer: torch.nn.Module, size: int) -> None:
    layer.to(memory_format=torch.channels_last)
    assert layer(random_images(size, size)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.lengthy
def test_the_compiler_sees_one_graph_at_every_size() -> None:
    layers = torch.nn.Sequential(SameConv2d(6, 4, 7, 2), SameMaxPool2d(3, 2), SameConv2d(4, 4, 3, 2))
    compiled = torch.compile(layers, backend="eager", fullgraph=True)
    for size in ((32, 32), (45, 64), (47, 33), (30, 30)):
        images = random_images(*size)
        torch.testing.assert_close(compiled(images), layers(images))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(7, 7), (8, 5)])
def test_padding_by_hand_is_the_same_average(size: int, stride: int, shape: tuple[int, int]) -> None:
    """A card gets this in place of PyTorch's own padding."""
    x = torch.randn(2, 3, *shape, dtype=torch.float64, requires_grad=True)
    (top, bottom), (left, right) = (same_padding(length, size, stride) for length in shape)
    usual = average_pool_same(x, size, stride)
    by_hand = _average_pool_padded(x, size, stride, (left, right, top, bottom))
    torch.testing.assert_close(by_hand, usual)
    weights = torch.randn_like(usual)
    torch.testing.assert_close(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (by_hand, usual)))
