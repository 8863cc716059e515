"""Tensors as raw bytes, and files that are written as a whole."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

from viaduct.errors import BadData, DiskFull
from viaduct.weights.checkpoint import count_bytes, explain_write_errors, get_dtype_name, make_tensor


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 4),
        ("F32", 4),
        ("bfloat16", 2),
        ("BF16", 2),
        ("int64", 8),
        ("U8", 1),
        ("bool", 1),
        ("float8_e4m3fn", 1),
    ],
)
def test_the_size_of_a_value_is_in_the_name_of_its_dtype(dtype: str, size: int) -> None:
    assert count_bytes(dtype) == size


def test_bytes_that_are_no_bool_become_true() -> None:
    values = make_tensor(bytearray(b"\x00\x01\x02\xff"), "bool", (2, 2))
    assert values.tolist() == [[False, True], [True, True]]
    assert values.view(torch.uint8).max() == 1, "torch computes wrongly with other bytes"


def test_values_are_little_endian_and_keep_their_shape() -> None:
    values = make_tensor(bytearray(struct.pack("<6f", *range(6))), "float32", (2, 3))
    assert torch.equal(values, torch.arange(6.0).view(2, 3))
    assert get_dtype_name(values) == "float32"


def test_a_tensor_without_values_keeps_its_shape_unless_no_memory_could_hold_it() -> None:
    assert make_tensor(bytearray(), "float32", (0, 7)).shape == (0, 7)
    with pytest.raises(BadData, match="impossible shape"):
        make_tensor(bytearray(), "float32", (0, 1 << 40, 1 << 40))


def test_an_error_of_the_disk_is_named_with_the_file_and_other_errors_pass(tmp_path: Path) -> None:
    def write(error: Exception) -> None:
        with explain_write_errors(tmp_path / "new" / "w.ckpt", "the checkpoint "):
            raise error

    with pytest.raises(DiskFull, match=r"cannot write the checkpoint .*w\.ckpt: No space left on device\."):
        write(OSError(28, "No space left on device"))
    with pytest.raises(ZeroDivisionError):
        write(ZeroDivisionError())
    assert (tmp_path / "new").is_dir()
