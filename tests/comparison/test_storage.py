"""Tensors in files: what is read, and above all what is refused."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.tensor_files import VALUES, make_stored, member_of, npy_with, write_array
from viaduct.comparison.storage import open_tensor, read_dtype_and_shape
from viaduct.errors import BadData

# What must not be read.


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
def test_a_file_cut_short_is_refused_wherever_it_is_cut(tmp_path: Path, suffix: str) -> None:
    content = write_array(tmp_path / f"a.{suffix}").read_bytes()
    for length in range(0, len(content), 7):
        cut = tmp_path / f"cut{length}.{suffix}"
        cut.write_bytes(content[:length])
        with pytest.raises(BadData):
            open_tensor(make_stored(cut, member_of(suffix)))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", there=VALUES)
    for tensor, words in [
        (make_stored(tmp_path / "none.npy"), "none.npy cannot be read"),
        (make_stored(tmp_path / "none.npz", "a"), "none.npz cannot be read"),
        (make_stored(tmp_path / "none.pt"), "none.pt cannot be read"),
        (make_stored(tmp_path / "none.safetensors", "a"), "none.safetensors cannot be read"),
        (make_stored(tmp_path / "a.npz", "gone"), "no member 'gone'"),
        (make_stored(tmp_path / "a.bin"), "the suffix is not known"),
        (make_stored(None), "statistics only"),
        (make_stored(None, fault="a raw dump file"), "a raw dump file"),
    ]:
        with pytest.raises(BadData, match=words):
            open_tensor(tensor)


# What must be read.


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_every_type_comes_back_as_it_was(tmp_path: Path, suffix: str, dtype: str) -> None:
    for shape in [(2, 3, 4), (24,), (), (0, 3), (70, 400)]:
        values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        path = write_array(tmp_path / f"a{len(shape)}{shape[:1]}.{suffix}", values)
        array = open_tensor(make_stored(path, member_of(suffix)))
        assert read_dtype_and_shape(path, member_of(suffix)) == (dtype, shape)
        assert (array.dtype, array.shape) == (values.dtype, shape)
        assert np.array_equal(array, values)
        assert not array.flags.writeable


def test_bfloat16_comes_as_its_bits(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensor = torch.linspace(-3, 3, 10).bfloat16()
    bits = tensor.view(torch.uint16).numpy()
    torch.save(tensor, tmp_path / "a.pt")
    save_file({"x": tensor}, tmp_path / "a.safetensors")
    npy_with(tmp_path / "a.npy", "{'descr': '<V2', 'fortran_order': False, 'shape': (10,), }", bits.tobytes())
    for path, member in [("a.pt", ""), ("a.safetensors", "x"), ("a.npy", "")]:
        assert read_dtype_and_shape(tmp_path / path, member) == ("bfloat16", (10,))
        assert open_tensor(make_stored(tmp_path / path, member)).dtype == np.uint16
        assert np.array_equal(open_tensor(make_stored(tmp_path / path, member)), bits)


def test_fortran_order_big_endian_and_packed_archives(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.asfortranarray(VALUES))
    np.save(tmp_path / "b.npy", VALUES.astype(">f4"))
    np.savez_compressed(tmp_path / "c.npz", x=VALUES, f=np.asfortranarray(VALUES))
    for path, member in [("f.npy", ""), ("b.npy", ""), ("c.npz", "x"), ("c.npz", "f")]:
        assert read_dtype_and_shape(tmp_path / path, member) == ("float32", (2, 3, 4))
        assert np.array_equal(open_tensor(make_stored(tmp_path / path, member)), VALUES)


def test_a_large_array_is_mapped_not_read(tmp_path: Path) -> None:
    values = np.zeros(1 << 20, dtype=np.float32)
    for suffix in ("npy", "npz", "safetensors", "pt"):
        array = open_tensor(make_stored(write_array(tmp_path / f"a.{suffix}", values), member_of(suffix)))
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, memoryview), suffix


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    for suffix in ("npy", "npz", "safetensors", "pt"):
        os.mkfifo(tmp_path / f"a.{suffix}")
        with pytest.raises(BadData):
            read_dtype_and_shape(tmp_path / f"a.{suffix}")


def test_five_hundred_headers_are_read_within_a_quarter_of_a_second(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, VALUES)
    paths = [tmp_path / f"{number}.npy" for number in range(500)]
    for path in paths:
        path.write_bytes(buffer.getvalue())
    best = min(time_reading(paths) for _ in range(3))
    assert best < 0.25, f"{best:.3f} s for {len(paths)} headers"


def time_reading(paths: list[Path]) -> float:
    start = time.process_time()
    for path in paths:
        read_dtype_and_shape(path)
    return time.process_time() - start
