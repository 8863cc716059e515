"""Convolutions larger than 1x1: by our kernels or by the library."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct.kernels import grouped, grouped_compiler, grouped_cuda
from viaduct.kernels.choices import use_choices


def test_a_kernel_that_cannot_be_had_after_all_leaves_the_layer_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(*tensors: object) -> torch.Tensor:
        asked.append("once")
        raise grouped_compiler.CudaError("launching a kernel of our own: invalid argument (1)")

    given_up: set[torch.device] = set()
    monkeypatch.setattr(grouped_cuda, "FAILED_DEVICES", given_up)
    monkeypatch.setattr(grouped_cuda, "can_run", lambda x: x.device not in given_up)
    for name in ("run_convolution", "run_input_gradient", "run_weight_gradient"):
        monkeypatch.setattr(grouped_cuda, name, refuse)
    conv = torch.nn.Conv2d(64, 64, 3, padding=1, groups=16, bias=False)
    x = torch.randn(2, 64, 6, 6).contiguous(memory_format=torch.channels_last)
    with pytest.warns(UserWarning, match="left to cuDNN.*invalid argument"):
        made = grouped.forward(x, conv.weight, conv)
    torch.testing.assert_close(made, conv(x))
    at_input, at_weight = grouped.backward(torch.randn(72, 64), x, conv.weight, conv)
    assert at_input.shape == x.shape
    assert at_weight.shape == conv.weight.shape
    assert asked == ["once"]  # not for every layer of every step again


@pytest.mark.parametrize("chosen", ["own", "library", None])
@pytest.mark.parametrize(("per_group", "default"), [(4, "own"), (32, "library")])
def test_tuning_may_choose_between_our_kernels_and_the_library(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, per_group: int, default: str
) -> None:
    monkeypatch.setattr(grouped_cuda, "can_run", lambda x: True)
    conv = torch.nn.Conv2d(32 * per_group, 32 * per_group, 3, padding=1, groups=32, bias=False)
    x = torch.empty(2, 32 * per_group, 6, 6)
    key = ("grouped_input_implementation", grouped.make_implementation_signature(x, conv))
    with use_choices({} if chosen is None else {key: {"implementation": chosen}}):
        assert grouped.uses_own_kernel("input", conv, x) == ((chosen or default) == "own")
        assert grouped.uses_own_kernel("forward", conv, x) == (default == "own")  # another direction


@pytest.mark.parametrize(
    ("channels", "groups", "stride", "size", "same"),
    [(128, 32, 1, 7, False), (128, 32, 2, 8, True), (128, 16, 2, 7, True), (128, 4, 2, 8, False)],
)
def test_the_library_agrees_with_float64_where_there_is_no_card(
    channels: int, groups: int, stride: int, size: int, same: bool
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from kernels.check_kernels import check_grouped, find_wrong

    assert find_wrong(check_grouped(channels, groups, stride, size, same=same)) == {}


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(128, 128, 3, padding=1),  # one group
        nn.Conv2d(96, 96, 3, padding=1, groups=24),
        nn.Conv2d(128, 128, 3, padding=1, groups=64),
        nn.Conv2d(128, 128, 5, padding=2, groups=32),
        nn.Conv2d(128, 128, 3, 3, padding=1, groups=32),
        nn.Conv2d(128, 128, 3, padding=2, dilation=2, groups=32),
        nn.Conv2d(128, 256, 3, padding=1, groups=32),
    ],
    ids=str,
)
def test_a_layer_that_our_kernels_cannot_run_is_left_to_the_library(conv: nn.Conv2d) -> None:
    assert not grouped.is_supported(conv)
    assert grouped.is_supported(nn.Conv2d(128, 128, 3, 2, padding=1, groups=32))
