"""Contents of files that a script wrote."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from viaduct.carrying import contents
from viaduct.carrying.contents import Unreadable, flatten, read_content
from viaduct.data.tfrecord import RecordWriter
from viaduct.weights.bundle import write_bundle


def torch_writer(**values: Any) -> Any:
    import torch

    return lambda path: torch.save(values, path)


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (marker,)

    for name in ("a.pkl", "a.pt"):
        path = tmp_path / name
        if name.endswith("pkl"):
            path.write_bytes(pickle.dumps(Evil()))
        else:
            torch_writer(x=Evil())(path)
        with pytest.raises(Unreadable, match="not executed"):
            read_content(path)
    assert not marker.exists()


def test_arrays_in_pickles_numpy_files_and_tensorflow_checkpoints_are_read(tmp_path: Path) -> None:
    import torch

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"x": np.arange(3.0), "n": [np.float32(2.5), None]}))
    assert read_content(tmp_path / "a.pkl").values == {"n.0": "2.5", "n.1": "None"}
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    np.save(tmp_path / "b.npy", np.arange(4))
    assert read_content(tmp_path / "a.npz").arrays["x"].tolist() == [0, 1, 2]
    assert read_content(tmp_path / "b.npy").arrays["array"].tolist() == [0, 1, 2, 3]
    write_bundle(tmp_path / "model.ckpt-5", {"dense/bias": torch.ones(2), "half": torch.ones(1, dtype=torch.bfloat16)})
    found = read_content(tmp_path / "model.ckpt-5.index").arrays
    assert {name: array.tolist() for name, array in found.items()} == {"dense/bias": [1.0, 1.0], "half": [1.0]}


def test_two_values_with_the_same_path_are_both_kept() -> None:
    assert flatten({1: 2, "1": 3, "a": {"b": 4}, "a.b": 5}).values == {"1": "2", "1'": "3", "a.b": "4", "a.b'": "5"}


def test_what_a_reader_leaves_out_is_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["w"] = [1.0, 2.0]
        assert read_content(tmp_path / "a.h5").skipped == []
        file["w"].attrs["config"] = "{}"
    assert read_content(tmp_path / "a.h5").skipped == ["attributes"]
    value = b"\x0a\x04hist"  # field 1, the tag, and no simple_value
    summary = b"\x0a" + bytes([len(value)]) + value
    path = tmp_path / "events.out.tfevents.1.host"
    with RecordWriter(path) as writer:
        writer.write(b"\x10\x01\x2a" + bytes([len(summary)]) + summary)  # an event of step 1
    assert (read_content(path).values, read_content(path).skipped) == ({}, ["hist"])


def test_a_text_of_another_encoding_is_refused_and_not_guessed(tmp_path: Path) -> None:
    for name, data in (("a.txt", b"caf\xe9"), ("b.txt", b"a\0b")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Unreadable, match="its format is not known"):
            read_content(tmp_path / name)
    (tmp_path / "c.log").write_text("step 1\r\n\r\nstep 2\rstep 3\n")
    assert read_content(tmp_path / "c.log").lines == ["step 1", "step 2", "step 3"]


def test_objects_in_numpy_files_and_damaged_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([None]), allow_pickle=True)
    (tmp_path / "b.pkl").write_bytes(b"\x80\x04garbage")
    (tmp_path / "c.png").write_bytes(b"no image")
    for name, reason in (("a.npy", "holds Python objects"), ("b.pkl", "cannot be read"), ("c.png", "cannot be read")):
        with pytest.raises(Unreadable, match=reason):
            read_content(tmp_path / name)


def test_a_file_that_is_too_large_or_has_too_many_values_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(list(range(10))))
    monkeypatch.setattr(contents, "MAX_VALUES", 9)
    with pytest.raises(Unreadable, match="more than 9 values"):
        read_content(path)
    monkeypatch.setattr(contents, "MAX_FILE_BYTES", 5)
    with pytest.raises(Unreadable, match="larger than"):
        read_content(path)


def test_a_container_within_itself_ends_and_one_that_is_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert flatten({"ring": ring}).values == {"ring.0": "1", "ring.1": "…"}
    monkeypatch.setattr(contents, "MAX_DEPTH", 2)
    with pytest.raises(Unreadable, match="nested more than 2 deep"):
        flatten([[[[5]]]])


def test_a_long_array_of_texts_is_compared_as_a_whole() -> None:
    names = np.array([f"class {number}" for number in range(5000)])
    other = names.copy()
    other[2500] = "class x"
    assert flatten({"a": names}).values != flatten({"a": other}).values


def test_values_are_named_by_their_path_and_sets_are_in_order() -> None:
    found = flatten({"args": argparse.Namespace(lr=np.float32(0.5)), "seen": {"b", "a"}, "none": {}, "x": np.ones(2)})
    assert found.values == {"args.lr": "0.5", "seen.0": "a", "seen.1": "b", "none": "(empty)"}
    assert {name: array.tolist() for name, array in found.arrays.items()} == {"x": [1.0, 1.0]}
    assert flatten(3).values == {"value": "3"}


@pytest.mark.parametrize(
    ("name", "begin", "reader"),
    [
        ("events.out.tfevents.1.host", b"", "read_events"),
        ("model.ckpt-5.index", b"", "read_tensorflow"),
        ("weights.bin", b"\x93NUMPY", "read_numpy"),
        ("weights.bin", b"\x89HDF\r\n", "read_hdf5"),
        ("model.npz", b"PK\x03\x04", "read_numpy"),
        ("model.bin", b"PK\x03\x04", "read_torch"),
        ("state", b"\x80\x02}q", "read_pickle"),
        ("image.JPG", b"\xff\xd8", "read_image"),
        ("result.json", b"{", "read_text"),
    ],
)
def test_the_reader_is_chosen_by_name_and_first_bytes(tmp_path: Path, name: str, begin: bytes, reader: str) -> None:
    (tmp_path / name).write_bytes(begin)
    assert contents.find_reader(tmp_path / name).__name__ == reader
