"""Listing of a dump directory that never leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from comparison.foreign_dumps import numbers
from viaduct.comparison.readers import read
from viaduct.comparison.readers.listing import join_some, list_files, load_json, make_natural_key, resolve_inside
from viaduct.errors import BadData


def test_a_path_that_is_no_file_is_refused_and_not_left_out(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbers(2))
    np.savez(tmp_path / "empty.npz")
    os.mkfifo(tmp_path / "pipe.npy")
    os.mkfifo(tmp_path / "other")
    os.symlink(tmp_path / "nowhere.npy", tmp_path / "link.npy")
    faults = {tensor.op: tensor.fault for tensor in read(tmp_path).tensors}
    assert faults == {
        "a": "",
        "empty": "empty.npz holds no tensors.",
        "link": "link.npy: it is a broken link",
        "other": "other: it is a pipe, not a file",
        "pipe": "pipe.npy: it is a pipe, not a file",
    }


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret.npy", "/etc/passwd", "a\\b.npy", "a\0b", "link.npy", 7, None]
)
def test_a_name_in_a_dump_never_leads_out_of_its_folder(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (tmp_path / "secret.npy").write_bytes(b"")
    (folder / "link.npy").symlink_to(tmp_path / "secret.npy")
    assert resolve_inside(folder, name) is None
    assert resolve_inside(folder, "a.npy") == folder / "a.npy"


def test_folders_behind_links_and_too_deep_ones_are_named_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viaduct.comparison.readers.listing.MAX_DEPTH", 1)
    root = tmp_path / "dump"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "deep.npy").write_bytes(b"")
    (root / "a" / "near.npy").write_bytes(b"")
    (root / "out").symlink_to(tmp_path)
    found = list_files(root)
    assert list(found.files) == ["a/near.npy"]
    assert found.outward_links == ["out"]
    assert any("more than 1 deep" in note for note in found.notes)
    assert any("were not followed: out" in note for note in found.notes)


@pytest.mark.parametrize(("text", "reason"), [("{", "not complete JSON"), ("[" * 100_000, "nested too deeply")])
def test_damaged_json_is_refused_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(BadData, match=rf"dump\.json.*{reason}"):
        load_json(tmp_path / "dump.json")


def test_names_are_in_natural_order_and_huge_numbers_last() -> None:
    huge = "layer" + "9" * 5000
    assert sorted([huge, "layer10", "layer2", "a"], key=make_natural_key) == ["a", "layer2", "layer10", huge]


def test_many_names_are_counted_and_control_characters_escaped() -> None:
    assert join_some(["a", "b\x1b"]) == "a, 'b\\x1b'"
    assert join_some("abcdefg") == "a, b, c, d, e and 2 more"
