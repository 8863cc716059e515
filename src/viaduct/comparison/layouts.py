"""Conversion of the left tensor from an accelerator's layout, such as NC1HWC0, to the layout of the right one.

These layouts split an axis into blocks of 16 (or 32) and pad the last block. The blocks are joined, the axes are put
into the right's order, and the padding is cut off. A tensor in a plain layout such as NHWC is only transposed.
"""

from __future__ import annotations

import math
from itertools import permutations

from viaduct.comparison.records import Array, Layout
from viaduct.errors import BadData

Shape = tuple[int, ...]

PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN")  # one letter for each axis
ORDERLESS = ("", "ND", "FORMAT_ND", "NC", "RESERVED")  # names that do not state the order of axes


def convert_layout(array: Array, layout: Layout) -> Array:
    """Return the left array with the right's axes and shape; raise BadData if the layouts do not allow it."""
    left, right, shape = layout[0].upper(), layout[1].upper(), layout[2]
    if not array.size:  # it has no blocks to join
        return _fit_shape(array, shape, left, right)
    if left == "NC1HWC0":
        return _join_blocks(array, (0, 1, 4, 2, 3), "NCHW", right, shape)
    if left == "NDC1HWC0":
        return _join_blocks(array, (0, 1, 2, 5, 3, 4), "NDCHW", right, shape)
    if left == "FRACTAL_Z":
        return _convert_fractal_z(array, right, shape)
    if left == "FRACTAL_NZ":
        return _convert_fractal_nz(array, shape)
    if left not in PLAIN and left not in ORDERLESS:
        raise BadData(f"the layout {layout[0]!r} is not known; the tensor was not compared.")
    if left in PLAIN and right in PLAIN and len(left) == array.ndim == len(right):
        array = _reorder_axes(array, left, right)
    return _fit_shape(array, shape, left, right)


def _join_blocks(array: Array, axes: tuple[int, ...], letters: str, right: str, shape: Shape) -> Array:
    """Join the blocks of channels, and cut off the padding; the number of channels follows from the other axes."""
    if array.ndim != len(axes):
        raise _make_mismatch_error(array, f"{len(axes)} axes", shape)
    moved = array.transpose(axes)
    channel = letters.index("C")
    dims = (*moved.shape[:channel], moved.shape[channel] * moved.shape[channel + 1], *moved.shape[channel + 2 :])
    others = math.prod(dims) // dims[channel] if dims[channel] else 0
    channels, remainder = divmod(math.prod(shape), others) if others else (0, 0)
    if remainder or channels > dims[channel]:
        raise _make_mismatch_error(array, letters, shape)
    cut = moved.reshape(dims)[(slice(None),) * channel + (slice(channels),)]
    return _fit_shape(_reorder_axes(cut, letters, _find_order(cut.shape, letters, right, shape)), shape, letters, right)


def _find_order(dims: Shape, letters: str, right: str, shape: Shape) -> str:
    """Return the right's order of axes; if it is not stated, the first plain order that gives its shape."""
    if sorted(right) == sorted(letters):
        return right
    sizes = dict(zip(letters, dims, strict=True))
    fitting = (order for order in PLAIN if set(order) == set(letters) and tuple(sizes[axis] for axis in order) == shape)
    return next(fitting, letters)


def _convert_fractal_z(array: Array, right: str, shape: Shape) -> Array:
    """Convert FRACTAL_Z, (C1·H·W, N1, N0, C0): the blocks of a convolution's kernel."""
    for order in (right,) if right in PLAIN and len(right) == 4 else ("HWCN", "NCHW", "NHWC"):
        sizes = dict(zip(order, shape, strict=True)) if len(shape) == 4 else {}
        if array.ndim == 4 and sizes and _blocks_fit(array.shape, sizes):
            return _fit_shape(_unblock_weights(array, sizes, order), shape, "FRACTAL_Z", right)
    raise _make_mismatch_error(array, "FRACTAL_Z", shape)


def _blocks_fit(dims: Shape, sizes: dict[str, int]) -> bool:
    return dims[0] == -(-sizes["C"] // dims[3]) * sizes["H"] * sizes["W"] and dims[1] == -(-sizes["N"] // dims[2])


def _unblock_weights(array: Array, sizes: dict[str, int], order: str) -> Array:
    height, width, (blocks, n1, n0, c0) = sizes["H"], sizes["W"], array.shape
    c1 = blocks // (height * width)
    split = array.reshape(c1, height, width, n1, n0, c0).transpose(3, 4, 0, 5, 1, 2)
    kernel = split.reshape(n1 * n0, c1 * c0, height, width)[: sizes["N"], : sizes["C"]]
    return _reorder_axes(kernel, "NCHW", order)


def _convert_fractal_nz(array: Array, shape: Shape) -> Array:
    """Convert FRACTAL_NZ, (…, N1, M1, M0, N0): the blocks of a matrix (…, M, N)."""
    rows, columns = (1, *shape)[-2:] if shape else (1, 1)
    *batch, n1, m1, m0, n0 = (1,) * (4 - array.ndim) + array.shape
    if array.ndim < 4 or n1 != -(-columns // n0) or m1 != -(-rows // m0):
        raise _make_mismatch_error(array, "FRACTAL_NZ", shape)
    first = len(batch)
    moved = array.transpose(*range(first), first + 1, first + 2, first, first + 3)
    return _fit_shape(moved.reshape(*batch, m1 * m0, n1 * n0)[..., :rows, :columns], shape, "FRACTAL_NZ", "ND")


def _reorder_axes(array: Array, letters: str, order: str) -> Array:
    if sorted(letters) != sorted(order):
        return array
    return array.transpose([letters.index(axis) for axis in order])


def _fit_shape(array: Array, shape: Shape, left: str, right: str) -> Array:
    """Return the array in a shape that differs in axes of length 1 only, or in an orderless layout also in other axes.

    Raise BadData for any other shape. A permutation of the axes is refused too: it would need a transposition.
    """
    if array.shape == shape:
        return array
    array_dims, shape_dims = [dim for dim in array.shape if dim != 1], [dim for dim in shape if dim != 1]
    # If a layout is explicitly orderless, such as ND, (2, 4, 5) may be (2, 20).
    is_orderless = any(layout and layout in ORDERLESS for layout in (left, right))
    if array.size == math.prod(shape) and (
        array_dims == shape_dims or (is_orderless and sorted(array_dims) != sorted(shape_dims))
    ):
        return array.reshape(shape)
    raise _make_mismatch_error(array, left or "ND", shape)


def _make_mismatch_error(array: Array, left: str, shape: Shape) -> BadData:
    swapped = array.ndim == len(shape) <= 6 and tuple(shape) in set(permutations(array.shape))
    hint = " The axes seem to be in another order." if swapped else ""
    return BadData(f"{tuple(array.shape)} in the layout {left} cannot become {tuple(shape)}.{hint}")
