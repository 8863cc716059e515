"""Files of safetensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from comparison.tensor_files import VALUES, make_stored
from viaduct.comparison.storage import open_tensor, read_headers
from viaduct.errors import BadData


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
        open_tensor(make_stored(tmp_path / "a.safetensors", "bad"))
    assert open_tensor(make_stored(tmp_path / "a.safetensors", "good")).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("header", [b"[1]", b"{", b"[" * 200_000, b"\xff\xfe"])
def test_a_header_that_is_no_object_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(BadData, match=r"a\.safetensors"):
        read_headers(tmp_path / "a.safetensors")


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(BadData, match=r"not a \.safetensors file"):
        read_headers(tmp_path / "a.safetensors")


def test_a_tensor_may_begin_at_an_odd_byte(tmp_path: Path) -> None:
    header = json.dumps(
        {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
         "b": {"dtype": "F32", "shape": [6], "data_offsets": [1, 25]}}
    ).encode()  # fmt: skip
    data = b"\x07" + VALUES.tobytes()[:24]
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    assert open_tensor(make_stored(tmp_path / "a.safetensors", "b")).tolist() == [0, 1, 2, 3, 4, 5]
