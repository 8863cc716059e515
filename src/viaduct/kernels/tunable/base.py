"""Parts shared by the tunable kernels: limits of a device, cases, and random tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from viaduct.kernels.choices import Key, Signature, use_choices
from viaduct.kernels.norm import Norm
from viaduct.kernels.sizes import DTYPES, H200_SHARED_MEMORY, read_shared_memory
from viaduct.search_space import Point, Space

NAMED_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
ALLOWED_ERRORS = {"float64": 1e-6, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}  # as `compute_error` returns
MAX_REGISTERS = 255  # for a thread

Compute = Callable[[], Sequence[Tensor]]
LaunchAndReference = tuple[Compute, Compute]  # of a case


@dataclass(frozen=True)
class Limits:
    """Resources of a multiprocessor; the defaults are those of an H200."""

    shared_memory: int = H200_SHARED_MEMORY  # bytes for a block
    registers: int = 65536
    threads: int = 2048


@lru_cache
def read_limits(device: torch.device) -> Limits:
    """Return the limits of a card; the defaults for Triton's interpreter."""
    if device.type != "cuda":
        return Limits()
    properties = torch.cuda.get_device_properties(device)
    registers = int(getattr(properties, "regs_per_multiprocessor", Limits.registers))
    return Limits(read_shared_memory(device), registers, int(properties.max_threads_per_multi_processor))


@dataclass(frozen=True)
class Case:
    """A kernel launch on random tensors of a signature, and the same computation in PyTorch as reference."""

    key: Key
    launch: Compute
    reference: Compute

    @property
    def allowed_error(self) -> float:
        """Relative error that the signature's dtype allows."""
        return ALLOWED_ERRORS[str(self.key[1][-1])]

    def run(self, point: Point | None) -> Sequence[Tensor]:
        """Launch with these parameters; None: the defaults."""
        if point is None:
            return self.launch()
        with use_choices({self.key: point}):
            return self.launch()

    def measure_error(self, point: Point | None) -> float:
        """Return the largest relative error of the results."""
        pairs = zip(self.run(point), self.reference(), strict=True)
        return max(compute_error(actual, expected) for actual, expected in pairs)


def compute_error(actual: Tensor, expected: Tensor) -> float:
    """Return the relative error in the Euclidean norm; infinite if `actual` has another shape or is not finite."""
    actual, expected = actual.detach().double(), expected.detach().double()
    if actual.shape != expected.shape or not bool(actual.isfinite().all()):
        return float("inf")
    return float((actual - expected).norm() / expected.norm().clamp_min(1e-30))


class RandomTensors:
    """Draws random tensors, with a fixed seed."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator().manual_seed(0)

    def draw_rows(self, rows: int, channels: int) -> Tensor:
        return torch.randn(rows, channels, generator=self.generator).to(self.device, self.dtype)

    def draw_images(self, count: int, channels: int, height: int, width: int) -> Tensor:
        """Return channels_last images [N, C, H, W]."""
        x = self.draw_rows(count * height * width, channels)
        return x.view(count, height, width, channels).permute(0, 3, 1, 2)

    def draw_norm(self, channels: int) -> Norm:
        """Return a batch norm with random statistics, scale and shift."""
        mean, shift = (torch.randn(channels, generator=self.generator) * 0.3 for _ in range(2))
        inverse_deviation, scale = (torch.rand(channels, generator=self.generator) + 0.5 for _ in range(2))
        return Norm(*(tensor.to(self.device) for tensor in (mean, inverse_deviation, scale, shift)))


def read_sizes(signature: Signature) -> tuple[int, ...]:
    """Return the sizes of a signature, without its dtype."""
    return tuple(int(value) for value in signature[:-1])


@dataclass(frozen=True)
class Tunable:
    """Kernel with the functions that make its search space and, from random tensors and sizes, its cases."""

    kernel: str
    make_space: Callable[[Signature, Limits], Space]
    prepare_case: Callable[..., LaunchAndReference]

    def make_case(self, signature: Signature, device: torch.device) -> Case:
        """Return a case with random tensors of the sizes and dtype in a signature."""
        random = RandomTensors(device, NAMED_DTYPES[str(signature[-1])])
        return Case((self.kernel, signature), *self.prepare_case(random, *read_sizes(signature)))


def limit_elements(tile: int, point: Point, most: int) -> str | None:
    """Reject tiles of `tile` elements with more than `most` elements for each thread, or with idle threads."""
    elements = tile / (int(point["warps"]) * 32)
    if elements > most:
        return f"{elements:g} elements a thread do not fit into registers"
    return f"a thread has {elements:g} of an element" if elements < 1 else None


def unpack_signs(signs: Tensor, channels: int) -> Tensor:
    """Return sign bits, [rows, bytes], as floats [rows, channels] of 0 or 1."""
    bits = (signs[:, :, None].int() >> torch.arange(8, device=signs.device)) & 1
    return bits.flatten(1)[:, :channels].float()
