"""Every tunable kernel computes the same with every launch parameter of its space, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")
CHECKS = Path(__file__).with_name("check_tunable.py")
GROUPED = ("grouped_convolution", "grouped_input_gradient", "grouped_weight_gradient")
CPU = torch.device("cpu")
Errors = dict[str, dict[str, float]]  # by case and point


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """In a process of its own: Triton decides at its import whether it interprets."""
    made = subprocess.run(
        [sys.executable, str(CHECKS), str(int.from_bytes(os.urandom(2), "big")), "2"],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, Any] = json.loads(made.stdout)
    return found


@pytest.fixture(scope="module")
def errors(found: dict[str, Any]) -> Errors:
    sampled: Errors = found["sampled"]
    return sampled


def list_wrong(errors: Errors) -> dict[str, float]:
    return {
        f"{case}: {point}": error
        for case, found in errors.items()
        for point, error in found.items()
        if point != "allowed" and not error <= found["allowed"]
    }


def test_candidates_compute_what_pytorch_does(errors: Errors) -> None:
    assert list_wrong(errors) == {}
    assert sum(len(found) - 1 for found in errors.values()) > 100


def test_what_a_network_launches_has_spaces_and_cases(found: dict[str, Any]) -> None:
    """The signatures that a step records are those that the spaces and cases are made for."""
    assert list_wrong(found["networks"]) == {}
    assert {"scale_shift", "stem_convolution", "sum_terms_pooled", "merge_gradients"} <= set(found["launched"])


def test_defaults_are_the_sizes_that_were_fixed_before() -> None:
    from viaduct.kernels.tunable import make_space

    def default(kernel: str, *signature: int | str) -> tuple[object, ...]:
        return tuple(make_space((kernel, (*signature, "bfloat16")), CPU).default.values())

    assert default("stem_convolution", 64, 112, 112) == (128, 4, 2, 3)
    assert default("stem_inference", 64, 112, 112) == (128, 4, 1, 3)
    assert default("stem_pool", 64, 112, 112)[:2] == (16, 4)
    assert default("stem_sums", 200_704)[:3] == (32, 4, 8)
    assert default("stem_input", 64, 112, 112)[:2] == (8, 2)
    assert default("stem_weight", 64, 112, 112) == (64, 4, 1, 3)
    assert default("sum_terms", 1000, 200) == (8, 256, 4)
    assert default("pooling_forward", 8, 64, 28, 28, 3, 2, 0, 0) == (2, 4, 64, 2)
    assert default("batch_norm_gradient_sums", 100_000, 256, 2) == (32, 64, 8, 4, 64)
    layers = {per_group: signature_of(256, 28, per_group, 1)[:-1] for per_group in (4, 8)}
    assert default("grouped_convolution", *layers[4]) == (64, 2, 8, 0, 0)
    assert default("grouped_convolution", *layers[8]) == (64, 3, 8, 0, 0)
    assert default("grouped_input_gradient", *layers[8]) == (32, 3, 8, 0, 0)
    assert default("grouped_weight_gradient", *layers[8]) == (64, 2, 8, 0, 0)


def test_no_kernel_is_forgotten(errors: Errors) -> None:
    from viaduct.kernels.tunable import list_tunables

    assert {case.split()[0] for case in errors} | set(GROUPED) == set(list_tunables())


def signature_of(count: int, size: int, per_group: int, stride: int) -> tuple[int | str, ...]:
    out = (size - 1) // stride + 1
    return (count, size, size, out, out, 32 * per_group, 1, 1, per_group, stride, "bfloat16")


@pytest.mark.parametrize("kernel", GROUPED)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("per_group", [4, 8, 16, 32])
def test_grouped_spaces_have_only_blocks_that_fit_a_card(kernel: str, stride: int, per_group: int) -> None:
    from viaduct.kernels.grouped_cuda import BlockShape, plan_launch, square_tile, window_tile
    from viaduct.kernels.tunable import make_space
    from viaduct.kernels.tunable.grouped import read_layer

    for count, size in ((1, 7), (32, 56), (256, 14)):
        signature = signature_of(count, size, per_group, stride)
        layer, space = read_layer(signature), make_space((kernel, signature), CPU)
        assert 20 < space.size < space.combinations
        square = kernel == "grouped_input_gradient" and stride == 2
        tile = square_tile(layer) if square else window_tile(layer, reads_gradient=kernel == "grouped_weight_gradient")
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
    from viaduct.kernels.tunable.base import Draw

    signature = (*signature_of(2, 7, per_group, stride)[:-1], "float32")
    channels, out = 32 * per_group, (7 - 1) // stride + 1
    draw = Draw(CPU, torch.float32)
    weight = (draw.images(channels, per_group, 3, 3) * 0.2).double().requires_grad_()
    x = draw.images(2, channels, 7, 7).double().requires_grad_()
    y = F.conv2d(x, weight, stride=stride, padding=1, groups=32)
    gradient = x.detach() if stride == 1 else draw.images(2, channels, out, out).double()
    expected = dict(zip(GROUPED, (y, *torch.autograd.grad(y, (x, weight), gradient, retain_graph=True)), strict=True))
    if stride == 1:  # the case of the weights draws a gradient of its own
        second = draw.images(2, channels, out, out).double()
        expected["grouped_weight_gradient"] = torch.autograd.grad(y, weight, second)[0]
    for kernel in GROUPED:
        (found,) = make_case((kernel, signature), CPU).reference()
        torch.testing.assert_close(found, expected[kernel].detach())
