from __future__ import annotations

import torch
from torch import Tensor, nn

from viaduct import models
from viaduct.benching.counting import count_step_work


class NeedsValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return images * self.weight if bool(images.sum() > 0) else images


def test_a_network_that_needs_values_is_not_counted_and_the_reason_is_kept() -> None:
    work = count_step_work(NeedsValues, 2, 8, torch.float32)
    assert work.flop is None
    assert work.bytes_least is None
    assert "does not run without values" in (work.why_not or "")


def test_the_groups_of_a_convolution_are_counted_once_in_each_of_its_three_passes() -> None:
    def build() -> nn.Module:
        grouped = nn.Conv2d(8, 16, 3, padding=1, groups=4, bias=False)
        return nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), grouped)

    work = count_step_work(build, 2, 10, torch.float32)
    first, second = 2 * (2 * 8 * 100) * 3, 2 * (2 * 16 * 100) * (8 // 4 * 9)
    assert work.flop == 2 * first + 3 * second  # no gradient of the images is asked for


def test_a_matrix_product_is_counted_forward_and_backward() -> None:
    work = count_step_work(lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), 4, 2, torch.float32)
    assert work.flop == 2 * (2 * 4 * 12 * 5)


def test_bytes_follow_the_precision_and_the_least_are_fewer_than_unfused_ones() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    half, single_precision = (count_step_work(build, 2, 16, dtype) for dtype in (torch.bfloat16, torch.float32))
    assert half.bytes_least is not None
    assert single_precision.bytes_least is not None
    assert single_precision.bytes_unfused is not None
    assert half.bytes_least < single_precision.bytes_least < single_precision.bytes_unfused


def test_resnet_50_multiplies_as_often_as_papers_say() -> None:
    work = count_step_work(lambda: models.build("resnet50_v1", classes=1001), 1, 224, torch.float32)
    assert work.flop is not None
    forward = 4.09e9  # multiplications of one image
    stem = 7 * 7 * 3 * 64 * 112 * 112  # whose input needs no gradient
    assert abs(work.flop / 2 - (3 * forward - stem)) / (3 * forward) < 0.01
