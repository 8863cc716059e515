"""The kernels on a real card, in bf16, against float64; `make test-gpu`."""

import random
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
]
ALLOWED = 2e-2  # bf16 keeps eight bits; gradients go through a dozen roundings


def good(errors: dict[str, float], plain: dict[str, float] | None = None, most: float = ALLOWED) -> None:
    """Small, or hardly more than what PyTorch's own bf16 does: a ReLU or a pool that decides otherwise than float64
    sends a gradient elsewhere, whoever computes it."""
    allowed = {name: max(most, 1.3 * (plain or {}).get(name, 0.0)) for name in errors}
    assert {name: error for name, error in errors.items() if not error < allowed[name]} == {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("same", [False, True])
def test_stem(same: bool, seed: int) -> None:
    from kernels.check_kernels import check_stem

    both = []
    for own in (True, False):
        torch.manual_seed(seed)
        both.append(check_stem(same, (64, 96, 224)[seed], 8, "cuda", torch.bfloat16, own))
    good(*both)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("grouped", [False, True])
def test_blocks(grouped: bool, seed: int) -> None:
    from kernels.check_kernels import check_blocks
    from viaduct.models.resnet import Bottleneck
    from viaduct.models.resnext import GroupedBottleneck

    kind, filters = (GroupedBottleneck, (128, 256, 512)[seed]) if grouped else (Bottleneck, (64, 128, 96)[seed])
    both = []
    for own in (True, False):
        torch.manual_seed(seed)
        size = (28, 15, 14)[seed]
        both.append(check_blocks(kind, bool(seed % 2), filters, size, 8, "cuda", torch.bfloat16, own))
    good(*both)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "size"), [(128, 56), (256, 28), (512, 15), (1024, 7)])
def test_grouped(channels: int, size: int, stride: int) -> None:
    from kernels.check_kernels import check_grouped

    good(check_grouped(channels, 32, stride, size, stride == 2, 8, "cuda", torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("stride", "same"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("groups_of", [4, 8, 16, 32])
@pytest.mark.parametrize("size", [(56, 56), (28, 28), (14, 14), (7, 7), (9, 11), (1, 224)])
def test_grouped_in_cuda(size: tuple[int, int], groups_of: int, stride: int, same: bool, dtype: torch.dtype) -> None:
    from kernels.check_kernels import check_grouped_cuda
    from viaduct.kernels import grouped_cuda

    if not grouped_cuda.can_compile(0):
        pytest.skip("NVRTC does not compile here, or the card is older than Ampere")
    errors = check_grouped_cuda(128, 128 // groups_of, stride, size, same, 21, dtype)
    good({direction: errors[direction] for direction in ("output", "input")}, most=3e-3)  # rounded once
    good({"weight": errors["weight"]}, most=1e-4)  # not at all


def test_an_h200_compiles_our_grouped_convolutions() -> None:
    """Else each of the tests above would be skipped there, and training slow, in silence."""
    from viaduct.kernels import grouped_cuda

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("another card")
    grouped_cuda.load_kernel("grouped_convolution", 4, 1, False, False, (64, 2, 8), 0)  # raises the compiler's log
    assert grouped_cuda.can_compile(0)


def test_a_graph_replays_our_grouped_convolutions_on_its_own_stream() -> None:
    from kernels.check_kernels import grouped_case, measure_distance
    from viaduct.kernels import grouped, grouped_cuda

    if not grouped_cuda.can_compile(0):
        pytest.skip("NVRTC does not compile here, or the card is older than Ampere")
    conv, x, weight, _, _ = grouped_case(128, 32, 1, (14, 14), False, 4, "cuda", torch.bfloat16)
    layer = grouped.make_layer(x, conv)
    grouped_cuda.run_convolution(x, weight, layer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = grouped_cuda.run_convolution(x, weight, layer)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert measure_distance(made, grouped_cuda.run_convolution(x, weight, layer)) == 0.0


@pytest.mark.parametrize(("rows", "channels"), [(100_000, 64), (5_000, 2048), (33, 16), (200_001, 264)])
def test_norm(rows: int, channels: int) -> None:
    from kernels.check_kernels import check_norm

    good(check_norm(rows, channels, "cuda", torch.bfloat16))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "height", "width"), [(64, 111, 111), (512, 28, 27), (1032, 7, 7), (20, 9, 14)])
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("size", [2, 3])
def test_pool(kind: str, size: int, stride: int, channels: int, height: int, width: int) -> None:
    from kernels.check_kernels import check_pool

    good(check_pool(kind, size, stride, height, width, channels, 4, "cuda", torch.bfloat16))


def test_pool_of_whole_windows() -> None:
    from kernels.check_kernels import check_pool

    good(check_pool("whole", 5, 3, 14, 14, 512, 4, "cuda", torch.bfloat16))


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (256, 28), (1024, 7), (40, 13)])
@pytest.mark.parametrize(
    ("kinds", "readers"),
    [("n", [True]), ("nn", [True, True]), ("nm", [False] * 3 + [True]), ("mp", [True]), ("an", [True])],
)
def test_state(kinds: str, readers: list[bool], channels: int, size: int) -> None:
    from kernels.check_kernels import check_state

    good(
        check_state(kinds, readers, channels, size, 8, all(readers), len(kinds) > 1, "cuda", torch.bfloat16), most=5e-2
    )


@pytest.mark.usefixtures("without_tf32")
@pytest.mark.parametrize("keep", [None, 0.7])
def test_cells_in_float32(keep: float | None) -> None:
    from kernels.check_kernels import check_cells

    good(check_cells(28, 64, 8, keep, 0, "cuda", torch.float32))


def test_a_whole_amoebanet_is_as_near_to_float32_as_plain_bf16() -> None:
    from kernels.check_kernels import check_amoebanet

    fused, plain = check_amoebanet()
    assert fused < 1.25 * plain


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_plain_average_pools_send_gradients_where_they_belong(size: int, stride: int) -> None:
    """PyTorch's own does not, on this device and in this layout."""
    from viaduct.models.padding import average_pool_same

    x = torch.randn(2, 8, 7, 9, dtype=torch.float64)
    grads = []
    for where, layout in (("cpu", torch.contiguous_format), ("cuda", torch.channels_last)):
        there = x.to(where, memory_format=layout, copy=True).requires_grad_()
        made = average_pool_same(there, size, stride)
        (made * torch.arange(made.numel(), device=where, dtype=torch.float64).view(made.shape)).sum().backward()
        grads.append(there.grad.cpu())
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("per_group", [4, 8, 16, 32])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", ["grouped_convolution", "grouped_input_gradient", "grouped_weight_gradient"])
def test_grouped_candidates(kernel: str, stride: int, per_group: int) -> None:
    """Points of the tuning spaces compute the same."""
    from kernels.check_tunable import measure_errors

    out = (14 - 1) // stride + 1
    signature = (8, 14, 14, out, out, 32 * per_group, 1, 1, per_group, stride, "bfloat16")
    found = measure_errors((kernel, signature), torch.device("cuda", 0), 4, random.Random(0))
    good(found, most=found.pop("allowed"))


def test_triton_candidates() -> None:
    from kernels.check_tunable import SIGNATURES, measure_errors

    for kernel, signatures in SIGNATURES.items():
        for signature in signatures:
            key = (kernel, (*signature[:-1], "bfloat16"))
            found = measure_errors(key, torch.device("cuda", 0), 4, random.Random(0))
            good(found, most=found.pop("allowed"))
