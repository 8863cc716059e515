"""Kernels of the stem: 7x7 convolution with stride 2, pool, and their gradients. Always 64 filters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from viaduct.kernels import inference, stem
from viaduct.kernels.choices import Key, Signature
from viaduct.kernels.norm import Norm, Sums, view_as_rows
from viaduct.kernels.sizes import Loop
from viaduct.kernels.tunable.base import MAX_REGISTERS, Case, Draw, Limits, Tunable, make_draw, read_sizes
from viaduct.search_space import Parameter, Point, Space

FILTERS, PIECE = 64, 64  # output channels; numbers in a row of the window
WARPS, STAGES, WAVES = (1, 2, 4, 8), (1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 8, 12, 16)
BLOCKS = (4, 8, 16, 32, 64, 128, 256)
OTHER_REGISTERS = 40  # of a thread, for addresses, masks and values in flight


@dataclass(frozen=True)
class StemSpace:
    """Search space of a kernel of the stem; a parameter that the kernel does not use has a single value."""

    default: Loop
    min_block: int  # rows
    tensors: int  # number of tensors of a block's size in registers
    waves: bool = False
    pipelined: bool = False

    def make_space(self, signature: Signature, limits: Limits) -> Space:
        parameters = (
            Parameter("block", tuple(block for block in BLOCKS if block >= self.min_block)),
            Parameter("warps", WARPS),
            Parameter("waves", WAVES if self.waves else (self.default.waves,)),
            Parameter("stages", STAGES if self.pipelined else (self.default.stages,)),
        )
        bytes_each = 4 if signature[-1] == "float32" else 2
        rules = (self.limit_registers, partial(self.limit_shared_memory, limits, bytes_each))
        return Space(parameters, rules, default=asdict(self.default))

    def limit_registers(self, point: Point) -> str | None:
        """Reject blocks that need too many registers for each thread, or leave threads idle."""
        numbers, threads = int(point["block"]) * FILTERS, int(point["warps"]) * 32
        needed = self.tensors * numbers // threads + OTHER_REGISTERS
        if needed > MAX_REGISTERS:
            return f"{needed} registers a thread are more than {MAX_REGISTERS}"
        return "a thread has less than one number" if numbers < threads else None

    def limit_shared_memory(self, limits: Limits, bytes_each: int, point: Point) -> str | None:
        """Reject pipelines whose stages do not fit into shared memory."""
        tile = (int(point["block"]) + FILTERS) * PIECE * bytes_each
        used, allowed = int(point["stages"]) * tile if self.pipelined else 0, limits.shared_memory
        return f"{used} bytes of shared memory are more than {allowed}" if used > allowed else None


class Stem:
    """Random images and 7x7 weight, also in the kernels' layout (`stem.fold`, `stem.fold_weight`)."""

    def __init__(self, signature: Signature, device: torch.device) -> None:
        self.draw: Draw = make_draw(signature, device)
        count, height, width = read_sizes(signature)
        self.size = stem.Size(count, height, width, FILTERS, 0)
        self.images = self.draw.images(count, 3, 2 * height, 2 * width)
        weight = (self.draw.rows(FILTERS, 147).float() * 0.1).to(self.draw.dtype)
        self.weight = weight.view(FILTERS, 3, 7, 7)
        self.folded = stem.fold(self.images, 2, self.draw.dtype)  # padding 3
        self.folded_weight = stem.fold_weight(self.weight, 1, self.draw.dtype)

    def convolve(self) -> Tensor:
        """Compute the convolution in float64: [N, C, H, W]."""
        return F.conv2d(self.images.double(), self.weight.double(), stride=2, padding=3)

    def rows(self) -> Tensor:
        return self.draw.rows(self.size.rows, FILTERS)


def make_convolution(key: Key, signature: Signature, device: torch.device) -> Case:
    case = Stem(signature, device)
    expected = view_as_rows(case.convolve())
    return Case(key, lambda: [stem.convolve(case.folded, case.folded_weight, None, case.size)[0]], lambda: [expected])


def make_inference(key: Key, signature: Signature, device: torch.device) -> Case:
    case = Stem(signature, device)
    bias = case.draw.rows(1, FILTERS)[0]
    expected = (case.convolve() + bias.double().view(1, -1, 1, 1)).relu()
    return Case(key, lambda: [inference.stem_relu(case.images, case.folded_weight, bias, 3)], lambda: [expected])


def make_pool(key: Key, signature: Signature, device: torch.device) -> Case:
    case = Stem(signature, device)
    x, statistics = case.rows(), case.draw.norm(FILTERS)

    def compute() -> list[Tensor]:
        y = (x.float() * statistics.scale + statistics.shift).to(x.dtype).double().relu()
        images = y.view(*case.size.shape, FILTERS).permute(0, 3, 1, 2)
        pooled = F.max_pool2d(F.pad(images, (0, 1, 0, 1)), 3, 2)
        return [pooled.permute(0, 2, 3, 1)]

    return Case(key, lambda: [stem.pool(x, statistics, case.size)[0]], compute)


def make_sums(key: Key, signature: Signature, device: torch.device) -> Case:
    draw = make_draw(signature, device)
    (rows,) = read_sizes(signature)
    gradient, max_input, statistics = draw.rows(rows, FILTERS) + 1, draw.rows(rows, FILTERS), draw.norm(FILTERS)
    argmax = torch.randint(0, 10, (rows, FILTERS), generator=draw.generator).to(device, torch.uint8)

    def launch() -> list[Tensor]:
        sums = stem.sum_window_gradients(gradient, argmax, max_input, statistics)
        return [sums.total, sums.product]

    def compute() -> list[Tensor]:
        masked = torch.where(argmax < 9, gradient.double(), 0.0)
        return [masked.sum(0), (masked * (max_input.double() - statistics.mean) * statistics.inverse).sum(0)]

    return Case(key, launch, compute)


def make_input(key: Key, signature: Signature, device: torch.device) -> Case:
    """Return the case of the gradient w.r.t. the norm's input, with a random argmax of the pool."""
    case = Stem(signature, device)
    size, x, statistics = case.size, case.rows(), case.draw.norm(FILTERS)
    windows = size.count * size.pooled_size[0] * size.pooled_size[1]
    gradient = case.draw.rows(windows, FILTERS)
    argmax = torch.randint(0, 9, (windows, FILTERS), generator=case.draw.generator)
    argmax = drop_cells_outside(argmax, size).to(device, torch.uint8)
    sums = Sums(*(torch.randn(2, FILTERS, generator=case.draw.generator) * windows**0.5).to(device))
    return Case(
        key,
        lambda: [stem.compute_input_gradient(gradient, argmax, x, statistics, sums, size)],
        lambda: [compute_input_gradient(gradient, argmax, x, statistics, sums, size)],
    )


def drop_cells_outside(argmax: Tensor, size: stem.Size) -> Tensor:
    """Set windows whose cell is outside of the image to 9, as if the ReLU were 0."""
    down, across = (torch.arange(count) for count in size.pooled_size)
    cells = argmax.view(size.count, *size.pooled_size, FILTERS)
    outside = 2 * down.view(1, -1, 1, 1) + cells // 3 >= size.height
    outside |= 2 * across.view(1, 1, -1, 1) + cells % 3 >= size.width
    return torch.where(outside, 9, cells).view(argmax.shape)


def compute_input_gradient(
    gradient: Tensor, argmax: Tensor, x: Tensor, statistics: Norm, sums: Sums, size: stem.Size
) -> Tensor:
    """Compute the reference of `make_input` in float64."""
    height, width = size.pooled_size
    arrived = torch.zeros((size.count, size.height + 1, size.width + 1, FILTERS), dtype=torch.float64, device=x.device)
    for cell in range(9):
        part = torch.where(argmax == cell, gradient.double(), 0.0).view(size.count, height, width, FILTERS)
        row, column = cell // 3, cell % 3
        arrived[:, row : row + 2 * height : 2, column : column + 2 * width : 2] += part
    norm_gradient = arrived[:, : size.height, : size.width].reshape(size.rows, FILTERS)
    slope = sums.product / size.rows * statistics.inverse
    return (norm_gradient - sums.total / size.rows - (x.double() - statistics.mean) * slope) * statistics.scale


def make_weight(key: Key, signature: Signature, device: torch.device) -> Case:
    case = Stem(signature, device)
    norm_gradient = case.rows()
    gradient = norm_gradient.double().view(*case.size.shape, FILTERS).permute(0, 3, 1, 2)
    shape = (FILTERS, 3, 7, 7)
    images = case.images.double()
    expected = conv2d_weight(images, shape, gradient, stride=2, padding=3)  # type: ignore[no-untyped-call]
    return Case(
        key,
        lambda: [stem.unfold_weight(stem.compute_weight_gradient(norm_gradient, case.folded, case.size), 1)],
        lambda: [expected],
    )


CONVOLUTION = StemSpace(stem.CONVOLUTION, min_block=32, tensors=3, waves=True, pipelined=True)
INFERENCE = StemSpace(inference.DEFAULT_STEM, min_block=32, tensors=1, pipelined=True)
WEIGHT = StemSpace(stem.WEIGHT, min_block=16, tensors=1, waves=True, pipelined=True)
TUNABLES = [
    Tunable("stem_convolution", CONVOLUTION.make_space, make_convolution),
    Tunable("stem_inference", INFERENCE.make_space, make_inference),
    Tunable("stem_pool", StemSpace(stem.POOL, min_block=4, tensors=3).make_space, make_pool),
    Tunable("stem_sums", StemSpace(stem.SUMS, min_block=4, tensors=2, waves=True).make_space, make_sums),
    Tunable("stem_input", StemSpace(stem.INPUT, min_block=4, tensors=2).make_space, make_input),
    Tunable("stem_weight", WEIGHT.make_space, make_weight),
]
