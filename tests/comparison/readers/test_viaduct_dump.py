"""Dumps of viaduct are read back; damaged or hostile files are named, and the others are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.networks import find_tensor, train
from viaduct.comparison import readers
from viaduct.comparison.drift import Options, compare
from viaduct.comparison.index import INDEX_FILE, Entry, Index, write_index
from viaduct.comparison.measures import Unmeasurable
from viaduct.comparison.measuring import open_checked
from viaduct.comparison.readers.viaduct_dump import can_read, read
from viaduct.errors import BadData


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "dump"
    train(folder, steps="0,2", only="head,shared")
    return folder


@pytest.fixture
def dump(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "dump"))


def change_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "step_000000" / INDEX_FILE
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def faults(folder: Path, verify: bool = False) -> list[str]:
    """Why tensors cannot be read; with `verify` they are opened, as they are where they are measured."""
    tensors = read(folder).tensors
    found = [tensor.fault for tensor in tensors if tensor.fault]
    for tensor in tensors if verify else ():
        try:
            open_checked("left", tensor)
        except Unmeasurable as reason:
            found.append(str(reason))
    return found


def test_a_run_a_dump_and_one_step_are_all_understood(whole: Path) -> None:
    assert read(whole.parent).settings == read(whole).settings
    assert {tensor.step for tensor in read(whole).tensors} == {0, 2}
    assert {tensor.step for tensor in read(whole / "step_000002").tensors} == {2}
    assert read(whole).settings["steps"] == "0, 2"
    assert read(whole).kind == "viaduct"
    assert not read(whole).notes


def test_a_dump_of_viaduct_is_recognised(whole: Path) -> None:
    assert can_read(whole)
    assert readers.read(whole).kind == "viaduct"


def test_other_folders_are_not_taken_for_a_viaduct_dump(tmp_path: Path) -> None:
    assert not can_read(tmp_path)
    (tmp_path / INDEX_FILE).write_text('{"pages": []}')
    assert not can_read(tmp_path)
    with pytest.raises(BadData, match="holds no dump"):
        read(tmp_path / "nothing")


def test_an_unfinished_step_is_not_read(dump: Path) -> None:
    (dump / "step_000002").rename(dump / ".step_000002.part")
    assert {tensor.step for tensor in read(dump).tensors} == {0}


def test_a_complete_dump_has_no_faults(dump: Path) -> None:
    assert faults(dump, verify=True) == []


def test_a_missing_and_a_truncated_file_are_named(dump: Path) -> None:
    (dump / "step_000000" / "head.output.0.npy").unlink()
    path = dump / "step_000000" / "head.weight.parameter.npy"
    path.write_bytes(path.read_bytes()[:-4])
    side = read(dump)
    assert find_tensor(side, "head", "output").fault == "head.output.0.npy is missing"
    assert "bytes" in find_tensor(side, "head", "parameter").fault
    assert not find_tensor(side, "shared", "parameter").fault


def test_a_changed_byte_is_found_when_requested(dump: Path) -> None:
    path = dump / "step_000000" / "head.weight.parameter.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert faults(dump) == []
    assert "checksum" in faults(dump, verify=True)[0]


def test_a_truncated_index_is_named_and_the_other_step_read(dump: Path) -> None:
    path = dump / "step_000000" / INDEX_FILE
    path.write_text(path.read_text()[:-200])
    side = read(dump)
    assert {tensor.step for tensor in side.tensors if not tensor.fault} == {2}
    assert [tensor.op for tensor in side.tensors if tensor.step == 0] == [INDEX_FILE]  # refused, not left out
    assert "step_000000" in side.notes[0]
    with pytest.raises(BadData, match="holds no dump"):
        read(dump / "step_000000")


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(version=99),
        lambda record: record.update(format="other"),
        lambda record: record.update(tensors=None),
        lambda record: record.update(step=-1),
        lambda record: record["tensors"].append("text"),
        lambda record: record["tensors"][0].update(shape=[-1]),
        lambda record: record["tensors"][0].update(op=3),
    ],
)
def test_an_index_that_makes_no_sense_is_left_out_with_its_reason(
    dump: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    change_index(dump, change)
    side = read(dump)
    assert {tensor.step for tensor in side.tensors if not tensor.fault} == {2}
    assert "left out" in side.notes[0]
    assert "Error" not in side.notes[0]


@pytest.mark.parametrize("content", [b"", b"\0" * 80, b"{", b"nonsense"])
def test_a_damaged_index_does_not_turn_a_dump_into_a_plain_folder(dump: Path, content: bytes) -> None:
    (dump / "step_000000" / INDEX_FILE).write_bytes(content)
    shutil.rmtree(dump / "step_000002")
    for folder in (dump, dump / "step_000000"):
        with pytest.raises(BadData, match="holds no dump that can be read"):
            readers.read(folder)


def compare_dumps(left: Path, right: Path) -> tuple[int, dict[str, str]]:
    """The exit code, and why rows were refused."""
    drift = compare(left, right, Options())
    return drift.exit_code, {row.tensor_index: row.reason for row in drift.rows if row.result == "refused"}


@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_step_does_not_pass_even_if_it_is_damaged_on_both_sides(dump: Path, whole: Path, both: bool) -> None:
    (dump / "step_000002" / INDEX_FILE).write_bytes(b"")
    code, refused = compare_dumps(dump, dump if both else whole)
    assert code == 1
    assert "it is empty" in refused["index.json:output:0"]


def test_a_changed_byte_is_refused_when_it_is_compared(dump: Path) -> None:
    assert compare_dumps(dump, dump) == (0, {})
    for name in ("head.weight.parameter.npy", "head.output.0.npy"):
        path = dump / "step_000000" / name
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    code, refused = compare_dumps(dump, dump)
    assert code == 1
    assert "left: head.weight.parameter.npy is damaged: its checksum is" in refused["head:parameter:0"]
    assert "checksum" in refused["head:output:0"]


@pytest.mark.parametrize(("field", "value"), [("dtype", "float64"), ("shape", [1])])
def test_a_file_that_is_not_what_the_index_says_is_refused(dump: Path, field: str, value: object) -> None:
    names = "head.output.0.npy"
    change_index(dump, lambda r: [e.update({field: value}) for e in r["tensors"] if e["file"] == names])
    code, refused = compare_dumps(dump, dump)
    assert code == 1
    assert "head.output.0.npy is damaged: it h" in refused["head:output:0"]


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/passwd", "..", "a/../../b.npy"])
def test_a_file_outside_the_folder_is_never_opened(dump: Path, name: str) -> None:
    change_index(dump, lambda record: record["tensors"][0].update(file=name))
    hostile = next(tensor for tensor in read(dump).tensors if tensor.fault)
    assert "outside" in hostile.fault
    assert hostile.path is None


def test_a_link_is_not_followed(dump: Path, tmp_path: Path) -> None:
    path = dump / "step_000000" / "head.output.0.npy"
    path.rename(tmp_path / "elsewhere.npy")
    path.symlink_to(tmp_path / "elsewhere.npy")
    assert "missing" in find_tensor(read(dump), "head", "output").fault


def test_steps_of_different_runs_in_one_folder_are_noticed(dump: Path) -> None:
    change_index(dump, lambda record: record["settings"].update(precision="bfloat16"))
    assert "precision" in read(dump).notes[0]


def test_a_step_of_one_process_and_of_ranks_is_refused(dump: Path) -> None:
    """It cannot be known which of the two was dumped last."""
    step = dump / "step_000000"
    shutil.copytree(step, dump / "rank_0")
    (dump / "rank_0").rename(step / "rank_0")
    side = read(dump)
    assert [tensor.op for tensor in side.tensors if tensor.step == 0] == [INDEX_FILE]
    assert "holds a dump of one process (index.json) and one of ranks (rank_0)" in side.notes[0]
    assert {tensor.fault for tensor in read(step / "rank_0").tensors} == {""}


def test_ranks_of_dumps_with_different_numbers_of_ranks_are_noticed(tmp_path: Path) -> None:
    for rank, ranks in ((0, 2), (1, 2), (2, 4)):
        folder = tmp_path / "step_000000" / f"rank_{rank}"
        folder.mkdir(parents=True)
        write_index(folder, Index(0, rank, ranks, {}, {}, []))
    [note] = read(tmp_path).notes
    assert note == "ranks 0 and 2 of step 0 were dumped with different settings: number of ranks '2' and '4'"


@pytest.mark.parametrize("cut", [False, True])
def test_a_single_file_of_a_dump_has_the_type_that_its_index_says(tmp_path: Path, cut: bool) -> None:
    path = tmp_path / "step_000000" / "head.npy"
    path.parent.mkdir()
    np.save(path, np.array([16256, 16384], np.uint16))
    entry = Entry("head", "Linear", "output", 0, 0, dtype="bfloat16", shape=(2,), file=path.name)
    write_index(path.parent, Index(0, 0, 1, {}, {}, [entry]))
    if cut:
        (path.parent / INDEX_FILE).write_text("{")
    side = readers.read(path)
    assert [tensor.dtype for tensor in side.tensors] == ["uint16" if cut else "bfloat16"]
    assert bool(side.notes) == cut
