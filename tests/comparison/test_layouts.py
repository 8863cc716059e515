"""Conversion of a device's layout to the layout of the other side."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from viaduct.comparison.layouts import convert_layout
from viaduct.errors import BadData

Array = NDArray[np.float32]


def numbers(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def to_nc1hwc0(nchw: Array, block: int = 16) -> Array:
    n, c, h, w = nchw.shape
    padded = np.full((n, -(-c // block) * block, h, w), -7, np.float32)
    padded[:, :c] = nchw
    return padded.reshape(n, -1, block, h, w).transpose(0, 1, 3, 4, 2).copy()


def to_fractal_z(nchw: Array) -> Array:
    n, c, h, w = nchw.shape
    padded = np.full((-(-n // 16) * 16, -(-c // 16) * 16, h, w), -7, np.float32)
    padded[:n, :c] = nchw
    split = padded.reshape(-(-n // 16), 16, -(-c // 16), 16, h, w)
    return split.transpose(2, 4, 5, 0, 1, 3).reshape(-1, -(-n // 16), 16, 16).copy()


def to_fractal_nz(matrix: Array) -> Array:
    *batch, m, n = matrix.shape
    padded = np.full((*batch, -(-m // 16) * 16, -(-n // 16) * 16), -7, np.float32)
    padded[..., :m, :n] = matrix
    split = padded.reshape(*batch, -(-m // 16), 16, -(-n // 16), 16)
    first = len(batch)
    return split.transpose(*range(first), first + 2, first, first + 1, first + 3).copy()


# What must not be converted.


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((4, 3, 5, 5), ("NCHW", "NCHW", (4, 2, 5, 5))),  # larger, but no padded layout: never cut
        ((2, 3, 4, 5), ("NCHW", "NHWC", (2, 3, 4, 5))),
        ((2, 1, 4, 4, 16), ("NC1HWC0", "NCHW", (2, 17, 4, 4))),  # fewer channels than asked for
        ((2, 1, 4, 4, 16), ("NC1HWC0", "NCHW", (2, 3, 4, 5))),
        ((2, 1, 4, 16), ("NC1HWC0", "NCHW", (2, 3, 4, 2))),
        ((9, 1, 16, 16), ("FRACTAL_Z", "NCHW", (16, 17, 3, 3))),
        ((2, 1, 16, 16), ("FRACTAL_NZ", "ND", (16, 8))),
        ((9, 1, 16, 0), ("FRACTAL_Z", "NCHW", (16, 16, 3, 3))),
        ((2, 1, 16, 0), ("FRACTAL_NZ", "ND", (16, 8))),
        ((6, 4), ("ND", "ND", (4, 6))),  # perhaps transposed
        ((6, 4), ("", "", (24,))),  # nobody says why
        ((3, 4), ("C1HWNCoC0", "NCHW", (3, 4))),
    ],
)
def test_a_shape_that_the_layouts_do_not_explain_is_refused(
    shape: tuple[int, ...], layout: tuple[str, str, tuple[int, ...]]
) -> None:
    with pytest.raises(BadData):
        convert_layout(numbers(*shape), layout)


def test_axes_in_another_order_are_pointed_out() -> None:
    with pytest.raises(BadData, match="in another order"):
        convert_layout(numbers(2, 3, 4, 5), ("NCHW", "NCHW", (2, 4, 5, 3)))


# What must be.


@pytest.mark.parametrize("channels", [1, 3, 16, 17, 64])
@pytest.mark.parametrize("block", [16, 32])
def test_blocks_of_channels_are_joined_and_the_padding_is_cut_off(channels: int, block: int) -> None:
    golden = numbers(2, channels, 4, 5)
    device = to_nc1hwc0(golden, block)
    assert np.array_equal(convert_layout(device, ("NC1HWC0", "NCHW", golden.shape)), golden)
    nhwc = golden.transpose(0, 2, 3, 1)
    assert np.array_equal(convert_layout(device, ("NC1HWC0", "NHWC", nhwc.shape)), nhwc)
    assert np.array_equal(convert_layout(device, ("NC1HWC0", "ND", nhwc.shape)), nhwc)


def test_a_vector_stored_in_blocks_of_channels() -> None:
    golden = numbers(1, 20, 1, 1)
    assert np.array_equal(convert_layout(to_nc1hwc0(golden), ("NC1HWC0", "NHWC", (20,))), golden.reshape(20))


def test_blocks_of_channels_with_depth() -> None:
    golden = numbers(2, 5, 3, 4, 4)  # NCDHW
    device = np.stack([to_nc1hwc0(golden[:, :, depth]) for depth in range(3)], axis=1)
    assert np.array_equal(convert_layout(device, ("NDC1HWC0", "NCDHW", golden.shape)), golden)
    ndhwc = golden.transpose(0, 2, 3, 4, 1)
    assert np.array_equal(convert_layout(device, ("NDC1HWC0", "NDHWC", ndhwc.shape)), ndhwc)


@pytest.mark.parametrize("shape", [(8, 3, 7, 7), (64, 32, 3, 3), (17, 33, 1, 1)])
def test_blocks_of_a_kernel_are_joined(shape: tuple[int, ...]) -> None:
    golden = numbers(*shape)
    device = to_fractal_z(golden)
    hwcn = golden.transpose(2, 3, 1, 0)
    assert np.array_equal(convert_layout(device, ("FRACTAL_Z", "NCHW", shape)), golden)
    assert np.array_equal(convert_layout(device, ("FRACTAL_Z", "HWCN", hwcn.shape)), hwcn)
    assert np.array_equal(convert_layout(device, ("FRACTAL_Z", "ND", hwcn.shape)), hwcn)


@pytest.mark.parametrize("shape", [(3, 5), (16, 16), (40, 33), (2, 3, 20, 17)])
def test_blocks_of_a_matrix_are_joined(shape: tuple[int, ...]) -> None:
    golden = numbers(*shape)
    assert np.array_equal(convert_layout(to_fractal_nz(golden), ("FRACTAL_NZ", "ND", shape)), golden)


def test_plain_layouts_are_transposed() -> None:
    nchw = numbers(2, 3, 4, 5)
    assert np.array_equal(convert_layout(nchw, ("NCHW", "NHWC", (2, 4, 5, 3))), nchw.transpose(0, 2, 3, 1))
    assert np.array_equal(convert_layout(nchw, ("NCHW", "HWCN", (4, 5, 3, 2))), nchw.transpose(2, 3, 1, 0))
    assert np.array_equal(convert_layout(nchw, ("nchw", "NCHW", (2, 3, 4, 5))), nchw)


def test_axes_of_length_one_may_be_dropped() -> None:
    assert convert_layout(numbers(2, 10, 1, 1), ("NCHW", "NCHW", (2, 10))).shape == (2, 10)
    assert convert_layout(numbers(2, 10), ("ND", "NHWC", (20,))).shape == (20,)
