"""Parts shared by the tunable kernels: errors, limits, random tensors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_tunable import CPU
from viaduct.kernels.choices import find_choice
from viaduct.kernels.tunable.base import Case, Limits, RandomTensors, compute_error, read_limits, unpack_signs

KEY = ("some_kernel", (4, "float32"))


@pytest.mark.parametrize(
    "actual", [torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.inf]), torch.tensor([1.0]), torch.zeros(2, 1)]
)
def test_a_result_that_is_not_finite_or_has_another_shape_is_infinitely_wrong(actual: Tensor) -> None:
    assert compute_error(actual, torch.ones(2)) == math.inf


def test_an_error_is_relative_to_the_expected_norm() -> None:
    assert compute_error(torch.tensor([3.0, 4.4]), torch.tensor([3.0, 4.0])) == pytest.approx(0.08)
    assert compute_error(torch.ones(2), torch.ones(2)) == 0


def test_the_worst_result_of_a_launch_counts_and_the_point_is_there_only_while_it_runs() -> None:
    points = []

    def launch() -> list[Tensor]:
        points.append(find_choice(*KEY))
        return [torch.ones(1), torch.tensor([1.5])]

    case = Case(KEY, launch, lambda: [torch.ones(1), torch.ones(1)])
    assert case.measure_error({"warps": 8}) == pytest.approx(0.5)
    assert case.measure_error(None) == pytest.approx(0.5)
    assert points == [{"warps": 8}, None]
    assert case.allowed_error == 1e-5


def test_without_a_card_the_limits_are_those_of_an_h200() -> None:
    assert read_limits(CPU) == Limits(shared_memory=232_448, registers=65_536, threads=2048)


def test_two_cases_of_a_signature_have_the_same_tensors() -> None:
    first, second = (RandomTensors(CPU, torch.float16) for _ in range(2))
    assert torch.equal(first.draw_rows(3, 4), second.draw_rows(3, 4))
    images = first.draw_images(2, 8, 3, 5)
    assert (images.shape, images.dtype) == ((2, 8, 3, 5), torch.float16)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_signs_are_unpacked_from_the_lowest_bit() -> None:
    signs = torch.tensor([[0b0000_0101, 0b0000_0010]], dtype=torch.uint8)
    assert unpack_signs(signs, 10).tolist() == [[1, 0, 1, 0, 0, 0, 0, 0, 0, 1]]
