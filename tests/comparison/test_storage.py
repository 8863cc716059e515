"""Tensors in files: what is read, and above all what is refused."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.comparison.storage import describe, open_tensor, read_headers
from viaduct.comparison.tensors import Stored
from viaduct.errors import BadData

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def stored(path: Path | None, member: str = "", fault: str = "") -> Stored:
    return Stored("op", "", "output", 0, 0, 0, 0, "float32", (), path, member, fault=fault)


def npy_with(path: Path, header: str, data: bytes = b"") -> Path:
    text = header.encode("latin-1")
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return path


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("unpickled",)


# What must not be read.


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(BadData, match="never unpickled"):
        open_tensor(stored(tmp_path / "a.npy"))
    with pytest.raises(BadData, match="never unpickled"):
        describe(tmp_path / "a.npy")


def test_python_objects_within_an_archive_leave_their_neighbours_readable(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", bad=np.array([Bomb()], dtype=object), good=VALUES)
    assert "never unpickled" in str(read_headers(tmp_path / "a.npz")["bad"])
    assert np.array_equal(open_tensor(stored(tmp_path / "a.npz", "good")), VALUES)


def test_a_saved_tensor_that_names_anything_else_is_not_executed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(BadData, match="cannot be read as a tensor"):
        open_tensor(stored(tmp_path / "a.pt"))


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
def test_a_file_cut_short_is_refused_wherever_it_is_cut(tmp_path: Path, suffix: str) -> None:
    whole = written(tmp_path / f"a.{suffix}").read_bytes()
    for length in range(0, len(whole), 7):
        cut = tmp_path / f"cut{length}.{suffix}"
        cut.write_bytes(whole[:length])
        with pytest.raises(BadData):
            open_tensor(stored(cut, member_of(suffix)))


def test_a_file_cut_short_is_named_with_both_sizes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-5])
    with pytest.raises(BadData, match=r"a.npy is cut short.* 224 bytes, the file has 219"):
        describe(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999, 99999999999999999), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<M8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|V8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1], }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '<f4'}",
        "__import__('os').getcwd()",
        "(" * 5000,
        "",
    ],
)
def test_a_strange_header_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadData):
        open_tensor(stored(npy_with(tmp_path / "a.npy", header, bytes(64))))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]},
        {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]},
        {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]},
        {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]},
        {"dtype": "F8_E4M3", "shape": [16], "data_offsets": [0, 16]},
        {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]},
        {"shape": [4]},
        7,
    ],
)
def test_a_damaged_entry_leaves_the_other_tensors_readable(tmp_path: Path, entry: object) -> None:
    good = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    header = json.dumps({"bad": entry, "good": good}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + VALUES.tobytes()[:16])
    with pytest.raises(BadData, match=r"a.safetensors\[bad\]"):
        open_tensor(stored(tmp_path / "a.safetensors", "bad"))
    assert open_tensor(stored(tmp_path / "a.safetensors", "good")).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("header", [b"[1]", b"{", b"[" * 200_000, b"\xff\xfe"])
def test_a_header_that_is_no_object_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(BadData, match=r"a\.safetensors"):
        read_headers(tmp_path / "a.safetensors")


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(BadData, match=r"not a \.safetensors file"):
        read_headers(tmp_path / "a.safetensors")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", there=VALUES)
    for tensor, words in [
        (stored(tmp_path / "none.npy"), "none.npy cannot be read"),
        (stored(tmp_path / "none.npz", "a"), "none.npz cannot be read"),
        (stored(tmp_path / "none.pt"), "none.pt cannot be read"),
        (stored(tmp_path / "none.safetensors", "a"), "none.safetensors cannot be read"),
        (stored(tmp_path / "a.npz", "gone"), "no member 'gone'"),
        (stored(tmp_path / "a.bin"), "no format is known"),
        (stored(None), "statistics only"),
        (stored(None, fault="a raw dump file"), "a raw dump file"),
    ]:
        with pytest.raises(BadData, match=words):
            open_tensor(tensor)


# What must be read.


def written(path: Path, values: Any = VALUES) -> Path:
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, x=values)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(values.copy()), path)
    else:
        from safetensors.numpy import save_file

        save_file({"x": values}, path)
    return path


def member_of(suffix: str) -> str:
    return "x" if suffix in ("npz", "safetensors") else ""


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_every_type_comes_back_as_it_was(tmp_path: Path, suffix: str, dtype: str) -> None:
    for shape in [(2, 3, 4), (24,), (), (0, 3), (70, 400)]:
        values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        path = written(tmp_path / f"a{len(shape)}{shape[:1]}.{suffix}", values)
        array = open_tensor(stored(path, member_of(suffix)))
        assert describe(path, member_of(suffix)) == (dtype, shape)
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
        assert describe(tmp_path / path, member) == ("bfloat16", (10,))
        assert open_tensor(stored(tmp_path / path, member)).dtype == np.uint16
        assert np.array_equal(open_tensor(stored(tmp_path / path, member)), bits)


def test_fortran_order_big_endian_and_packed_archives(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.asfortranarray(VALUES))
    np.save(tmp_path / "b.npy", VALUES.astype(">f4"))
    np.savez_compressed(tmp_path / "c.npz", x=VALUES, f=np.asfortranarray(VALUES))
    for path, member in [("f.npy", ""), ("b.npy", ""), ("c.npz", "x"), ("c.npz", "f")]:
        assert describe(tmp_path / path, member) == ("float32", (2, 3, 4))
        assert np.array_equal(open_tensor(stored(tmp_path / path, member)), VALUES)


def test_an_unusual_but_honest_header_is_read(tmp_path: Path) -> None:
    header = '{"shape": (2,  2,), "descr": "<f4",\n "fortran_order": False}'
    path = npy_with(tmp_path / "a.npy", header, VALUES.tobytes()[:16])
    assert open_tensor(stored(path)).tolist() == [[0, 1], [2, 3]]


def test_saved_tensors_need_no_torch_and_keep_their_strides(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(VALUES.copy()).permute(2, 0, 1)[1:], tmp_path / "view.pt")
    torch.save(torch.nn.Parameter(torch.from_numpy(VALUES.copy())), tmp_path / "parameter.pt")
    torch.save(torch.from_numpy(VALUES.copy()), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert np.array_equal(open_tensor(stored(tmp_path / "view.pt")), VALUES.transpose(2, 0, 1)[1:])
    assert np.array_equal(open_tensor(stored(tmp_path / "parameter.pt")), VALUES)
    assert np.array_equal(open_tensor(stored(tmp_path / "old.pt")), VALUES)
    assert describe(tmp_path / "old.pt") == ("float32", (2, 3, 4))


def test_a_large_array_is_mapped_not_read(tmp_path: Path) -> None:
    values = np.zeros(1 << 20, dtype=np.float32)
    for suffix in ("npy", "npz", "safetensors", "pt"):
        array = open_tensor(stored(written(tmp_path / f"a.{suffix}", values), member_of(suffix)))
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, memoryview), suffix


def test_a_tensor_may_begin_at_an_odd_byte(tmp_path: Path) -> None:
    header = json.dumps(
        {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
         "b": {"dtype": "F32", "shape": [6], "data_offsets": [1, 25]}}
    ).encode()  # fmt: skip
    data = b"\x07" + VALUES.tobytes()[:24]
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    assert open_tensor(stored(tmp_path / "a.safetensors", "b")).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    for suffix in ("npy", "npz", "safetensors", "pt"):
        os.mkfifo(tmp_path / f"a.{suffix}")
        with pytest.raises(BadData):
            describe(tmp_path / f"a.{suffix}")


def test_a_thousand_headers_take_a_moment(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, VALUES)
    paths = [tmp_path / f"{number}.npy" for number in range(500)]
    for path in paths:
        path.write_bytes(buffer.getvalue())
    best = min(timed(paths) for _ in range(3))
    assert best < 0.25, f"{best:.3f} s for {len(paths)} headers"


def timed(paths: list[Path]) -> float:
    start = time.process_time()
    for path in paths:
        describe(path)
    return time.process_time() - start


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_pt_is_refused_in_plain_words(tmp_path: Path, protocol: int, zipped: bool) -> None:
    path = tmp_path / "evil.pt"
    torch.save(Bomb(), path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BadData, match="holds Python objects, which are not opened") as caught:
        open_tensor(stored(path))
    assert "weights_only" not in caught.value.what


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(range(256)) * 4, b"PK\x03\x04" + bytes(100)])
def test_garbage_in_a_pt_is_called_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "garbage.pt"
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"it is damaged, or|not a whole zip archive"):
        open_tensor(stored(path))
