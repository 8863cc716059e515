"""Search spaces and cases of the stem's kernels: 7x7 convolution with 64 filters and stride 2, pool, gradients."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from viaduct.kernels import inference, stem
from viaduct.kernels.choices import Signature
from viaduct.kernels.norm import Norm, Sums, view_as_rows
from viaduct.kernels.sizes import Loop
from viaduct.kernels.tunable.base import MAX_REGISTERS, LaunchAndReference, Limits, RandomTensors, Tunable
from viaduct.search_space import Parameter, Point, Space

FILTERS = 64  # output channels
WINDOW_ROW = 64  # elements in a row of the convolution's window
WARPS, STAGES, WAVES = (1, 2, 4, 8), (1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 8, 12, 16)
BLOCKS = (4, 8, 16, 32, 64, 128, 256)
OTHER_REGISTERS = 40  # of a thread, for addresses, masks and values in flight


@dataclass(frozen=True)
class StemSpace:
    """Search space of a kernel of the stem; a parameter that the kernel does not use has a single value."""

    default: Loop
    min_block: int  # smallest number of pixels or windows that a program handles at once
    tensors: int  # number of tensors of a block's size in registers
    waves: bool = False  # True if the kernel uses this parameter: programs loop over blocks
    pipelined: bool = False  # True if the kernel uses the parameter `stages`

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
        elements, threads = int(point["block"]) * FILTERS, int(point["warps"]) * 32
        needed = self.tensors * elements // threads + OTHER_REGISTERS
        if needed > MAX_REGISTERS:
            return f"{needed} registers a thread are more than {MAX_REGISTERS}"
        return "a thread has less than one element" if elements < threads else None

    def limit_shared_memory(self, limits: Limits, bytes_each: int, point: Point) -> str | None:
        """Reject pipelines whose stages do not fit into shared memory."""
        tile = (int(point["block"]) + FILTERS) * WINDOW_ROW * bytes_each
        used, allowed = int(point["stages"]) * tile if self.pipelined else 0, limits.shared_memory
        return f"{used} bytes of shared memory are more than {allowed}" if used > allowed else None


class StemTensors:
    """Random images and 7x7 weight, also in the kernels' layout (`stem.fold`, `stem.fold_weight`)."""

    def __init__(self, random: RandomTensors, count: int, height: int, width: int) -> None:
        self.random = random
        self.size = stem.Size(count, height, width, FILTERS, 0)
        self.images = self.random.draw_images(count, 3, 2 * height, 2 * width)
        weight = (self.random.draw_rows(FILTERS, 3 * 7 * 7).float() * 0.1).to(self.random.dtype)
        self.weight = weight.view(FILTERS, 3, 7, 7)
        # For a padding of 3 pixels: two folded pixels before, and an offset of 2 * 2 - 3.
        self.folded = stem.fold(self.images, 2, self.random.dtype)
        self.folded_weight = stem.fold_weight(self.weight, 1, self.random.dtype)

    def convolve(self) -> Tensor:
        """Compute the convolution in float64: [N, C, H, W]."""
        return F.conv2d(self.images.double(), self.weight.double(), stride=2, padding=3)

    def draw_rows(self) -> Tensor:
        return self.random.draw_rows(self.size.rows, FILTERS)


def prepare_convolution(random: RandomTensors, *shape: int) -> LaunchAndReference:
    tensors = StemTensors(random, *shape)
    expected = view_as_rows(tensors.convolve())

    def launch() -> list[Tensor]:
        return [stem.convolve(tensors.folded, tensors.folded_weight, None, tensors.size)[0]]

    return launch, lambda: [expected]


def prepare_inference(random: RandomTensors, *shape: int) -> LaunchAndReference:
    tensors = StemTensors(random, *shape)
    bias = random.draw_rows(1, FILTERS)[0]
    expected = (tensors.convolve() + bias.double().view(1, -1, 1, 1)).relu()
    return lambda: [inference.stem_relu(tensors.images, tensors.folded_weight, bias, 3)], lambda: [expected]


def prepare_pool(random: RandomTensors, *shape: int) -> LaunchAndReference:
    tensors = StemTensors(random, *shape)
    x, statistics = tensors.draw_rows(), random.draw_norm(FILTERS)

    def compute() -> list[Tensor]:
        y = (x.float() * statistics.scale + statistics.shift).to(x.dtype).double().relu()
        images = y.view(*tensors.size.shape, FILTERS).permute(0, 3, 1, 2)
        pooled = F.max_pool2d(F.pad(images, (0, 1, 0, 1)), 3, 2)
        return [pooled.permute(0, 2, 3, 1)]

    return lambda: [stem.pool(x, statistics, tensors.size)[0]], compute


def prepare_sums(random: RandomTensors, windows: int) -> LaunchAndReference:
    gradient, max_input = random.draw_rows(windows, FILTERS) + 1, random.draw_rows(windows, FILTERS)
    statistics = random.draw_norm(FILTERS)
    argmax = torch.randint(0, 10, (windows, FILTERS), generator=random.generator).to(random.device, torch.uint8)

    def launch() -> list[Tensor]:
        sums = stem.sum_window_gradients(gradient, argmax, max_input, statistics)
        return [sums.total, sums.product]

    def compute() -> list[Tensor]:
        masked = torch.where(argmax < 9, gradient.double(), 0.0)
        return [masked.sum(0), (masked * (max_input.double() - statistics.mean) * statistics.inverse_deviation).sum(0)]

    return launch, compute


def prepare_input_gradient(random: RandomTensors, *shape: int) -> LaunchAndReference:
    """Return the case of the gradient w.r.t. the norm's input, with a random argmax of the pool."""
    tensors = StemTensors(random, *shape)
    size, x, statistics = tensors.size, tensors.draw_rows(), random.draw_norm(FILTERS)
    windows = size.count * size.pooled_size[0] * size.pooled_size[1]
    gradient = random.draw_rows(windows, FILTERS)
    argmax = torch.randint(0, 9, (windows, FILTERS), generator=random.generator)
    argmax = drop_cells_outside(argmax, size).to(random.device, torch.uint8)
    sums = Sums(*(torch.randn(2, FILTERS, generator=random.generator) * windows**0.5).to(random.device))
    return (
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
    """Compute the reference of `prepare_input_gradient` in float64."""
    height, width = size.pooled_size
    arrived = torch.zeros((size.count, size.height + 1, size.width + 1, FILTERS), dtype=torch.float64, device=x.device)
    for cell in range(9):
        part = torch.where(argmax == cell, gradient.double(), 0.0).view(size.count, height, width, FILTERS)
        row, column = cell // 3, cell % 3
        arrived[:, row : row + 2 * height : 2, column : column + 2 * width : 2] += part
    norm_gradient = arrived[:, : size.height, : size.width].reshape(size.rows, FILTERS)
    slope = sums.product / size.rows * statistics.inverse_deviation
    return (norm_gradient - sums.total / size.rows - (x.double() - statistics.mean) * slope) * statistics.scale


def prepare_weight_gradient(random: RandomTensors, *shape: int) -> LaunchAndReference:
    tensors = StemTensors(random, *shape)
    norm_gradient = tensors.draw_rows()
    gradient = norm_gradient.double().view(*tensors.size.shape, FILTERS).permute(0, 3, 1, 2)
    shape = (FILTERS, 3, 7, 7)
    images = tensors.images.double()
    expected = conv2d_weight(images, shape, gradient, stride=2, padding=3)  # type: ignore[no-untyped-call]
    return (
        lambda: [stem.unfold_weight(stem.compute_weight_gradient(norm_gradient, tensors.folded, tensors.size), 1)],
        lambda: [expected],
    )


CONVOLUTION = StemSpace(stem.CONVOLUTION, min_block=32, tensors=3, waves=True, pipelined=True)
INFERENCE = StemSpace(inference.DEFAULT_STEM, min_block=32, tensors=1, pipelined=True)
WEIGHT = StemSpace(stem.WEIGHT, min_block=16, tensors=1, waves=True, pipelined=True)
TUNABLES = [
    Tunable("stem_convolution", CONVOLUTION.make_space, prepare_convolution),
    Tunable("stem_inference", INFERENCE.make_space, prepare_inference),
    Tunable("stem_pool", StemSpace(stem.POOL, min_block=4, tensors=3).make_space, prepare_pool),
    Tunable("stem_sums", StemSpace(stem.SUMS, min_block=4, tensors=2, waves=True).make_space, prepare_sums),
    Tunable("stem_input", StemSpace(stem.INPUT, min_block=4, tensors=2).make_space, prepare_input_gradient),
    Tunable("stem_weight", WEIGHT.make_space, prepare_weight_gradient),
]
