"""Search space and cases of kernels that reduce each channel over all rows of pixels.

These are a batch norm's statistics, the sums of its gradient, and the sum of several gradients.
"""

from __future__ import annotations

from dataclasses import asdict

import torch
from torch import Tensor, nn

from viaduct.kernels import norm, terms
from viaduct.kernels.choices import Signature
from viaduct.kernels.sizes import MAX_COLUMNS, choose_default_reduction_sizes, count_blocks
from viaduct.kernels.tunable.base import MAX_REGISTERS, LaunchAndReference, Limits, RandomTensors, Tunable, read_sizes
from viaduct.search_space import Parameter, Point, Space

PARAMETERS = (
    Parameter("height", (8, 16, 32, 64, 128)),
    Parameter("width", (16, 32, 64, 128)),
    Parameter("warps", (2, 4, 8)),
    Parameter("each", (1, 2, 4, 6, 8)),  # programs for each multiprocessor
    Parameter("registers", (0, 64, 80, 128)),
)
OTHER_REGISTERS = 24  # addresses, masks and values in flight, besides two sums for each element


def make_space(signature: Signature, limits: Limits) -> Space:
    """Return the space of a reduction's launch sizes that fit into the device's limits."""
    rows, channels, tensors = read_sizes(signature)

    def limit_registers(point: Point) -> str | None:
        threads = int(point["warps"]) * 32
        needed = 2 * int(point["height"]) * int(point["width"]) // threads + OTHER_REGISTERS
        allowed = int(point["registers"]) or MAX_REGISTERS
        if needed > allowed:
            return f"{needed} registers a thread are more than {allowed}"
        resident = int(point["registers"]) * threads * int(point["each"])
        return f"{resident} registers are more than {limits.registers}" if resident > limits.registers else None

    def limit_threads(point: Point) -> str | None:
        threads = int(point["warps"]) * 32 * int(point["each"])
        return f"{threads} threads are more than {limits.threads}" if threads > limits.threads else None

    def limit_columns(point: Point) -> str | None:
        columns = count_blocks(channels, int(point["width"]))
        return f"{columns} columns of programs are more than {MAX_COLUMNS}" if columns > MAX_COLUMNS else None

    default = asdict(choose_default_reduction_sizes(rows, channels, tensors))
    hints = [asdict(choose_default_reduction_sizes(size, channels, tensors)) for size in (1, 10**6, 10**9)]
    return Space(PARAMETERS, (limit_registers, limit_threads, limit_columns), default=default, hints=hints)


def prepare_statistics(random: RandomTensors, rows: int, channels: int, _: int) -> LaunchAndReference:
    """Return a case for the statistics of a batch norm."""
    x = random.draw_rows(rows, channels) + 2
    layer = nn.BatchNorm2d(channels).to(random.device)

    def launch() -> list[Tensor]:
        statistics = norm.compute_norm(x, layer)
        return [statistics.mean, statistics.inverse_deviation, statistics.scale, statistics.shift]

    def compute() -> list[Tensor]:
        mean = x.double().mean(0)
        inverse_deviation = (x.double().var(0, unbiased=False) + layer.eps).rsqrt()
        scale = layer.weight.double() * inverse_deviation
        return [mean, inverse_deviation, scale, layer.bias.double() - mean * scale]

    return launch, compute


def prepare_sums(random: RandomTensors, rows: int, channels: int, _: int) -> LaunchAndReference:
    """Return a case for the sums of a batch norm's gradient behind a ReLU."""
    gradient, x, statistics = (
        random.draw_rows(rows, channels) + 1,
        random.draw_rows(rows, channels),
        random.draw_norm(channels),
    )

    def launch() -> list[Tensor]:
        sums = norm.sum_gradient(gradient, x, statistics)
        return [sums.total, sums.product]

    def compute() -> list[Tensor]:
        masked = torch.where(x.float() * statistics.scale + statistics.shift > 0, gradient.double(), 0.0)
        return [masked.sum(0), (masked * (x.double() - statistics.mean) * statistics.inverse_deviation).sum(0)]

    return launch, compute


def prepare_merge(random: RandomTensors, rows: int, channels: int, tensors: int) -> LaunchAndReference:
    """Return a case that adds gradients, the first through a ReLU.

    `tensors` in the signature counts the gradients and the input of a norm; 1 means one gradient without a norm.
    """
    count = max(1, min(tensors - 1, terms.MAX_READERS))
    gradients = [random.draw_rows(rows, channels) + 1 for _ in range(count)]
    x, statistics = random.draw_rows(rows, channels), random.draw_norm(channels)
    bits = torch.rand((rows, count_blocks(channels, 8), 8), generator=random.generator) < 0.5
    signs = (bits << torch.arange(8)).sum(2).to(torch.uint8).to(random.device)
    mask = bits.flatten(1)[:, :channels].to(random.device)
    saved = [terms.SavedTerm((1, channels, 1, rows), x, statistics)] if tensors > 1 else []
    readers = [(gradient, index == 0) for index, gradient in enumerate(gradients)]

    def launch() -> list[Tensor]:
        merged, sums = terms.merge_gradients(readers, signs, saved)
        return [merged] if sums is None else [merged, sums.total, sums.product]

    def compute() -> list[Tensor]:
        merged = torch.where(mask, gradients[0].double(), 0.0) + sum(tensor.double() for tensor in gradients[1:])
        product = merged * (x.double() - statistics.mean) * statistics.inverse_deviation
        return [merged, merged.sum(0), product.sum(0)] if saved else [merged]

    return launch, compute


TUNABLES = [
    Tunable("batch_norm_statistics", make_space, prepare_statistics),
    Tunable("batch_norm_gradient_sums", make_space, prepare_sums),
    Tunable("merge_gradients", make_space, prepare_merge),
]
