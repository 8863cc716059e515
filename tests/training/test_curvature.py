"""Curvature factors and their inverses, against NumPy and explicit patches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from viaduct import models
from viaduct.training.curvature import Blocking, LayerCall, LayerStack, find_layers, invert, sum_covariance_blocks


def blocked_inverse(matrix: np.ndarray, block: int) -> np.ndarray:
    result = np.zeros_like(matrix)
    for start in range(0, len(matrix), block or len(matrix)):
        part = slice(start, start + (block or len(matrix)))
        result[part, part] = np.linalg.inv(matrix[part, part])
    return result


@pytest.mark.parametrize(("block", "size"), [(128, 300), (128, 128), (0, 300), (128, 5)])
def test_factors_are_cut_into_blocks_and_the_last_one_is_smaller(block: int, size: int) -> None:
    cut = Blocking(size, min(block, size) or size)
    x = torch.randn(4, 1, size, 1, 1, 3, 3)
    rows = x.double().numpy().transpose(0, 3, 4, 5, 6, 1, 2).reshape(-1, size)
    covariance = sum_covariance_blocks(x, cut)
    damped = covariance + 0.5 * torch.eye(cut.block_size)
    (inverse,) = invert([damped], [torch.zeros_like(damped)], [1.0])
    matrix = torch.block_diag(*inverse[0])[:size, :size].numpy()
    expected = blocked_inverse(rows.T @ rows + 0.5 * np.eye(size), block)
    np.testing.assert_allclose(matrix, expected, rtol=1e-3, atol=1e-4)
    assert (inverse.shape[1] == math.ceil(size / block)) if block else (inverse.shape[1] == 1)


def test_a_block_that_is_not_positive_definite_keeps_its_old_inverse_and_its_neighbour_does_not() -> None:
    good, bad, broken = 2 * torch.eye(3), -torch.eye(3), torch.full((3, 3), math.nan)
    factor = torch.stack([good, bad, broken])[None]
    old = torch.full_like(factor, 7.0)
    (found,) = invert([factor], [old], [3.0])
    torch.testing.assert_close(found[0, 0], 1.5 * torch.eye(3))
    assert torch.equal(found[0, 1:], old[0, 1:])


def test_the_layers_of_a_resnet_50_are_those_of_the_published_buckets() -> None:
    with torch.device("meta"):
        layers = find_layers(models.build("resnet50_v1"), 128)
    assert len(layers) == 54  # split_indices 26 and 53


def test_a_layer_without_a_gradient_gets_none_and_does_not_disturb_its_neighbour() -> None:
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False))
    stack = LayerStack(find_layers(model, 128))
    stack.input_inverses *= 2
    model[1].weight.grad = torch.ones(2, 3)
    stack.precondition()
    assert model[0].weight.grad is None
    assert torch.equal(model[1].weight.grad, torch.full((2, 3), 2.0))


def test_frozen_and_shared_weights_are_no_layers_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    assert [layer.name for layer in find_layers(model, 128)] == ["0.weight"]


@pytest.mark.parametrize(
    ("padding", "pads"),
    [
        (1, (1, 1, 1, 1)),
        ((2, 0), (0, 0, 2, 2)),  # rows above and below
        ("valid", (0, 0, 0, 0)),
        ("same", (2, 2, 1, 1)),
    ],
)
def test_patches_are_those_that_the_convolution_multiplies(padding: Any, pads: tuple[int, ...]) -> None:
    x, weight = torch.randn(2, 4, 7, 9), torch.randn(6, 2, 3, 3)
    stride = 1 if padding == "same" else (2, 3)
    call = LayerCall(x, weight, None, stride, padding, (1, 2), groups=2)
    assert call.compute_margins((3, 3), (1, 2)) == pads
    products = torch.einsum("ngcklij,gockl->ngoij", call.extract_patches(), weight.view(2, 3, 2, 3, 3))
    expected = F.conv2d(x, weight, None, stride, padding, (1, 2), groups=2)
    torch.testing.assert_close(products.flatten(1, 2), expected)


@pytest.mark.parametrize(("outputs", "inputs"), [(4, 6), (5, 7), (3, 2)])
def test_a_gradient_is_multiplied_by_both_inverses_block_by_block(outputs: int, inputs: int) -> None:
    stack = LayerStack(find_layers(nn.Linear(inputs, outputs, bias=False), 3))
    stack.input_inverses.normal_()
    stack.output_inverses.normal_()
    gradient = torch.randn(1, outputs, inputs)
    left = torch.block_diag(*stack.output_inverses[0])[:outputs, :outputs]
    right = torch.block_diag(*stack.input_inverses[0])[:inputs, :inputs]
    torch.testing.assert_close(stack.multiply(gradient)[0], left @ gradient[0] @ right, rtol=1e-4, atol=1e-5)
