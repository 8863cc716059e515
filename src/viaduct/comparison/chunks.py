"""Reading of a tensor in pieces that fit into the cache, each widened to float64: never the whole array at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.records import Array

Floats = NDArray[np.float64]

# Elements of a piece: so many that calling NumPy costs little (with 8,192 it was 40 % of the time), and so few that
# buffers (half a megabyte) stay in the cache.
CHUNK = 65536
LARGE_INTEGERS = ("int64", "uint64")  # float64 does not hold all of them, but all up to 2^53
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = {"complex64": "float32", "complex128": "float64"}
_HALF_TO_SINGLE = np.float32(2.0**112)  # changes the exponent's bias from 15 to 127, also of subnormals

_LOCAL = threading.local()  # attribute `buffers`: this thread's buffers by name and dtype


def reuse_buffer(name: str, length: int, dtype: Any = np.float64) -> Array:
    """Return this thread's buffer of that name and dtype, with its old content.

    Reusing memory is faster than allocating it, since the operating system zeroes new pages.
    """
    if not hasattr(_LOCAL, "buffers"):
        _LOCAL.buffers = {}
    buffers: dict[tuple[str, Any], Array] = _LOCAL.buffers
    memory = buffers.get((name, dtype))
    if memory is None or memory.size < length:
        memory = buffers[name, dtype] = np.empty(max(length, CHUNK), dtype)
    return memory[:length]


def explain_refusal(dtype: str, array: Array) -> str:
    """Return why an array cannot be measured; empty if it can. `dtype`: as the dump states it."""
    if dtype == "bfloat16":
        return "" if array.dtype.itemsize == 2 else f"bfloat16 needs 16-bit elements; the file has {array.dtype}"
    if array.dtype.kind in "biuf" or str(array.dtype) in COMPLEX:
        return ""
    return f"elements of type {dtype or array.dtype} cannot be measured; numbers and truth values can"


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive elements of a tensor in three forms, which must not be changed."""

    raw: Array  # as in the file; bfloat16 as its uint16 bits
    as_float: Array  # float32 if the file has floats of at most 32 bits, else float64
    as_float64: Floats  # for sums

    @property
    def remainder(self) -> Floats | float:
        """Return what `as_float64` rounds away of each element, exactly (of 2^53 + 1 the 1); 0 for other dtypes."""
        if str(self.raw.dtype) not in LARGE_INTEGERS:
            return 0.0
        high = (self.raw >> 32).astype(np.float64) * 2.0**32  # both halves fit into float64
        low = (self.raw & 0xFFFFFFFF).astype(np.float64)
        remainder: Floats = (high - self.as_float64) + low
        return remainder

    def take_first(self, size: int) -> Piece:
        return self if size == self.raw.size else Piece(self.raw[:size], self.as_float[:size], self.as_float64[:size])


class FlatTensor:
    """A tensor as a sequence of elements in C order, read piece by piece into reused buffers."""

    def __init__(self, array: Array, dtype: str, side: str) -> None:
        kind = str(array.dtype.newbyteorder("="))
        self.dtype = dtype if dtype == "bfloat16" else COMPLEX.get(kind, kind)
        self.shape = array.shape
        self.parts = 2 if kind in COMPLEX else 1  # real and imaginary parts are separate elements
        self.array = self._view_as_real(array)
        self.count = self.array.size
        length = min(CHUNK, self.count)
        self._float64 = reuse_buffer(f"{side} float64", length)
        self._float32 = reuse_buffer(f"{side} float32", length, np.float32)
        self._flat = self.array.reshape(-1) if self.array.flags.c_contiguous else None

    def _view_as_real(self, array: Array) -> Array:
        """Return complex numbers as pairs of real ones in native byte order, and real arrays unchanged."""
        if self.parts == 1:
            return array
        return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(self.dtype)

    def read_piece(self, start: int) -> Piece:
        """Return the elements from `start`, at most CHUNK of them."""
        stop = min(start + CHUNK, self.count)
        raw: Array = self.array.flat[start:stop] if self._flat is None else self._flat[start:stop]
        if not raw.dtype.isnative:
            raw = raw.astype(raw.dtype.newbyteorder("="))
        if self.dtype == "float64":
            return Piece(raw, raw, raw)
        as_float64 = self._float64[: stop - start]
        numbers = self._read_numbers(raw)
        np.copyto(as_float64, numbers)
        return Piece(raw, numbers if numbers.dtype == np.float32 else as_float64, as_float64)

    def _read_numbers(self, raw: Array) -> Array:
        """Return half-precision elements as float32, and others unchanged."""
        if self.dtype == "bfloat16":
            return convert_bfloat16(raw, self._float32[: raw.size])
        if self.dtype == "float16":
            return convert_half(raw, self._float32[: raw.size])
        return raw

    def find_index(self, flat: int) -> tuple[int, ...]:
        """Return the index, in the tensor's own shape, of the element at position `flat`."""
        return tuple(int(i) for i in np.unravel_index(flat // self.parts, self.shape))


def convert_bfloat16(bits: Array, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write bfloat16, the upper half of a float32, into `out` as float32, and return it."""
    bits32 = out.view(np.uint32)
    np.copyto(bits32, bits.view(np.uint16))
    np.left_shift(bits32, 16, out=bits32)
    return out


def convert_half(half: Array, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write float16 into `out` as float32, and return it; three times as fast as the cast of NumPy before 2.0."""
    bits32, bits = out.view(np.uint32), half.view(np.uint16)
    np.copyto(bits32, bits)
    sign = (bits32 & 0x8000) << 16
    np.left_shift(bits32 & 0x7FFF, 13, out=bits32)
    if bits32.max(initial=0) >= 0x7C00 << 13:  # Inf and NaN
        np.copyto(out, half)
        return out
    np.multiply(out, _HALF_TO_SINGLE, out=out)
    np.bitwise_or(bits32, sign, out=bits32)
    return out
