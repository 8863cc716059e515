"""Tensors in pieces, widened to float64."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from viaduct.comparison.chunks import CHUNK, FlatTensor, convert_bfloat16, convert_half, explain_refusal, reuse_buffer


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("", np.array(["a"])),
        ("", np.array([None])),
        ("", np.array([np.datetime64("2020")])),
        ("bfloat16", np.zeros(2, np.float32)),
    ],
)
def test_elements_that_are_not_numbers_are_refused_with_their_type(dtype: str, array: np.ndarray) -> None:
    assert str(array.dtype) in explain_refusal(dtype, array)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.bool_, np.complex64])
def test_numbers_and_truth_values_are_not_refused(dtype: type) -> None:
    assert explain_refusal("", np.zeros(2, dtype)) == ""


def test_a_piece_of_another_thread_has_other_memory() -> None:
    ours, theirs = reuse_buffer("test", 8), []
    worker = threading.Thread(target=lambda: theirs.append(reuse_buffer("test", 8)))
    worker.start()
    worker.join()
    assert not np.shares_memory(ours, theirs[0])
    assert np.shares_memory(ours, reuse_buffer("test", 4))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2 * CHUNK + 3, dtype=np.float32),
        np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4)),
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.arange(24, dtype=np.float64)[::2],
        np.arange(12, dtype=np.float16),
    ],
)
def test_the_pieces_are_all_elements_in_c_order(array: np.ndarray) -> None:
    flat = FlatTensor(array, "", "left")
    pieces = [flat.read_piece(start).as_float64.copy() for start in range(0, flat.count, CHUNK)]
    assert np.array_equal(np.concatenate(pieces), array.astype(np.float64).reshape(-1))
    assert all(piece.dtype == np.float64 for piece in pieces)


def test_the_parts_of_a_complex_number_have_the_index_of_their_number() -> None:
    flat = FlatTensor(np.array([[1 + 2j, 3 + 4j]], np.complex64), "", "left")
    assert flat.read_piece(0).as_float64.tolist() == [1, 2, 3, 4]
    assert [flat.find_index(position) for position in range(4)] == [(0, 0), (0, 0), (0, 1), (0, 1)]


def test_every_half_precision_number_is_widened_as_numpy_does_it() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    for half in (every, every[np.isfinite(every)]):  # NaN and Inf take another way
        found = convert_half(half, np.empty(half.size, np.float32))
        assert np.array_equal(found, half.astype(np.float32), equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(half))


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    bits = np.array([0x3F80, 0xBF80, 0x7F80, 0x0001], np.uint16)
    found = convert_bfloat16(bits, np.empty(4, np.float32))
    assert found.tolist() == [1.0, -1.0, np.inf, 2.0**-133]
