"""Minimum, maximum, mean, deviation, norm, NaN and Inf counts of arrays and tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from viaduct.comparison.chunks import LARGE_INTEGERS
from viaduct.comparison.formats import widen_bfloat16

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("min", "max", "mean", "std", "norm", "nan", "inf")
CHUNK = 1 << 15  # elements of a part; a float64 copy of so many stays in the second-level cache


def keep_exact(number: Any) -> float:
    """Return a number as a float, but a 64-bit integer that float64 would round as it is."""
    is_exact = type(number) is int and 2**53 < abs(number) < 2**64
    return number if is_exact else float(number)


class StatisticsAccumulator:
    """Statistics of a tensor that is added part by part.

    Only finite elements count. Of complex numbers the magnitudes count.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.lowest, self.highest, self.total, self.squares = math.inf, -math.inf, 0.0, 0.0
        self.count = self.nan = self.inf = 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add a part of at most CHUNK elements."""
        part = widen(values, self.dtype)
        squares = float(np.einsum("i,i->", part, part))
        if not math.isfinite(squares):
            self.nan += int(np.isnan(part).sum())
            self.inf += int(np.isinf(part).sum())
            part = part[np.isfinite(part)]
            squares = float(np.einsum("i,i->", part, part))
        if part.size:
            edges = values if self.dtype in LARGE_INTEGERS else part  # which float64 would round
            self.lowest = min(self.lowest, keep_exact(edges.min().item()))
            self.highest = max(self.highest, keep_exact(edges.max().item()))
            self.total, self.squares = self.total + float(part.sum()), self.squares + squares
            self.count += part.size

    def result(self) -> dict[str, float]:
        return make_statistics(self.lowest, self.highest, self.total, self.squares, self.count, self.nan, self.inf)


def widen(part: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """Return numbers of any dtype as float64: bfloat16 and float8 from their bits, complex ones as magnitudes."""
    if dtype == "bfloat16":
        part = widen_bfloat16(part)
    elif dtype.startswith("float8"):  # only in a process that has imported torch already to write such a tensor
        import torch

        return torch.from_numpy(part.copy()).view(getattr(torch, dtype)).double().numpy()
    elif np.iscomplexobj(part):
        part = np.abs(part)
    return part.astype(np.float64)


def make_statistics(
    lowest: float, highest: float, total: float, squares: float, count: int, nan: int, inf: int
) -> dict[str, float]:
    """Return the statistics by name; NaN if no element is finite."""
    if not count:
        return dict(zip(NAMES, (math.nan, math.nan, math.nan, math.nan, math.nan, nan, inf), strict=True))
    mean = total / count
    variance = squares / count - mean * mean
    if abs(variance) < 1e-15 * squares / count:
        variance = 0.0  # rounding error of a constant tensor
    std = math.sqrt(max(0.0, variance)) if math.isfinite(variance) else math.nan
    return dict(zip(NAMES, (lowest, highest, mean, std, math.sqrt(squares), nan, inf), strict=True))


def summarise_array(array: npt.NDArray[Any], dtype: str) -> dict[str, float]:
    """Return the statistics of an array. `dtype`: as it was on the device, for the bits of bfloat16 and float8."""
    flat, tally = array.reshape(-1), StatisticsAccumulator(dtype)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, CHUNK):
            tally.add(flat[start : start + CHUNK])
    return tally.result()


def summarise_tensor(tensor: Tensor) -> dict[str, float]:
    """Return the statistics of a tensor, of floating-point and complex numbers computed on its device."""
    import torch

    values = tensor.detach()
    if not (values.is_floating_point() or values.is_complex()):
        array = values.cpu().numpy()
        return summarise_array(array, str(array.dtype))
    values = values.abs() if values.is_complex() else values
    wide = torch.float64 if values.device.type in ("cpu", "cuda") else torch.float32  # other devices may lack float64
    flat = values.reshape(-1)
    if not flat.numel():
        return make_statistics(0.0, 0.0, 0.0, 0.0, 0, 0, 0)
    norm = torch.linalg.vector_norm(flat, dtype=wide)
    numbers = torch.stack([edge.to(wide) for edge in torch.aminmax(flat)] + [flat.sum(dtype=wide), norm]).tolist()
    if all(map(math.isfinite, numbers)):
        lowest, highest, total, length = numbers
        return make_statistics(lowest, highest, total, length * length, flat.numel(), 0, 0)
    flat = flat.to(wide)
    nan, finite = int(torch.isnan(flat).sum()), flat[torch.isfinite(flat)]
    inf = flat.numel() - finite.numel() - nan
    if not finite.numel():
        return make_statistics(0.0, 0.0, 0.0, 0.0, 0, nan, inf)
    total, squares = float(finite.sum()), float((finite * finite).sum())
    return make_statistics(float(finite.min()), float(finite.max()), total, squares, finite.numel(), nan, inf)
