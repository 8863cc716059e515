"""Recomputation of a layer from its dumped input and weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from comparison.comparison_builder import ComparisonBuilder, Layer
from viaduct.comparison.divergence import ArrayPair, Divergence
from viaduct.comparison.records import Origin
from viaduct.comparison.replay import apply_kernels, move_inside, replay_origin, reshape_to_convolution, solve_geometry


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def scene_of(builder: ComparisonBuilder) -> Divergence:
    stored = builder.rows[-1].tensor
    return Divergence(builder.rows, Origin(stored.op, "operator", 0, 0, len(builder.rows) - 1, ""), builder.open)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, **options: int) -> np.ndarray:
    arrays = [None if array is None else torch.from_numpy(array) for array in (x, weight, bias)]
    return F.conv2d(*arrays, **options).numpy()  # type: ignore[arg-type]


def test_an_output_that_the_layer_does_not_give_is_not_replayed() -> None:
    x, weight = normal(2, 4, 9, 9), normal(6, 4, 3, 3)
    output = convolve(x, weight, padding=1)
    assert solve_geometry(x, weight, np.zeros(6), ArrayPair(output, 1.1 * output)) is None
    assert reshape_to_convolution(x, normal(6, 4, 3), ArrayPair(output, output)) is None
    assert reshape_to_convolution(x, weight, ArrayPair(output[:1], output[:1])) is None, "another batch"


@pytest.mark.parametrize(("stride", "padding", "kernel"), [(1, 1, 3), (2, 1, 3), (2, 3, 7), (1, 0, 1), (1, 0, 3)])
def test_stride_and_padding_are_those_of_the_right_side(stride: int, padding: int, kernel: int) -> None:
    x, weight, bias = normal(2, 4, 12, 12), normal(6, 4, kernel, kernel, seed=1), normal(6, seed=2)
    output = convolve(x, weight, bias, stride=stride, padding=padding)
    replay = solve_geometry(x, weight, bias, ArrayPair(output + 0.1, output))
    assert replay is not None
    assert (replay.geometry.stride, replay.geometry.padding) == ((stride, stride), (padding, padding))
    assert np.allclose(replay.predict(), replay.outputs.right)
    assert replay.explained_share(replay.outputs.right + 0.1) == pytest.approx(1.0)
    assert replay.explained_share(replay.outputs.right) == 0.0


def test_a_grouped_convolution_and_a_linear_layer_are_computed_too() -> None:
    patches, weight = normal(5, 8, 3, 3), normal(6, 4, 3, 3, seed=1)
    assert np.allclose(apply_kernels(patches, weight), convolve(patches, weight, groups=2)[:, :, 0, 0])
    x, matrix = normal(3, 5, 8), normal(6, 8, seed=1)
    output = x @ matrix.T
    shaped = reshape_to_convolution(x, matrix, ArrayPair(output, output))
    assert shaped is not None
    assert solve_geometry(shaped[0], shaped[1], np.zeros(6), shaped[2]) is not None


@pytest.mark.parametrize(("edge", "mode"), [("circular", "wrap"), ("reflect", "reflect"), ("replicate", "edge")])
def test_indices_outside_the_image_follow_the_padding_mode(edge: str, mode: str) -> None:
    values = np.arange(5)
    inside, real = move_inside(np.arange(-3, 8), 5, edge)  # type: ignore[arg-type]
    assert np.array_equal(values[inside], np.pad(values, 3, mode=mode))  # type: ignore[call-overload]
    assert real.all()
    assert move_inside(np.arange(-1, 6), 5, "zeros")[1].tolist() == [False, *[True] * 5, False]


def test_the_origin_is_replayed_once_and_only_for_its_output() -> None:
    layer = Layer(stride=2)
    layer.builder.add("conv", layer.right() + 1, layer.right(), op_type="Conv2d")
    divergence = scene_of(layer.builder)
    replay = replay_origin(divergence)
    assert replay is not None
    assert replay.geometry.stride == (2, 2)
    assert replay_origin(divergence) is replay
    layer.builder.add("conv", layer.weight + 1, layer.weight, "gradient", op_type="Conv2d")
    assert replay_origin(scene_of(layer.builder)) is None
