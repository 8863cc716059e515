"""CSV files of other tools: columns by name, units, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.profiling import csv_files
from viaduct.profiling.csv_files import CsvRow, read_rows, read_table


def read(path: Path, content: bytes) -> tuple[list[CsvRow], list[str]]:
    path.write_bytes(content)
    notes: list[str] = []
    return list(read_rows(path, notes)), notes


def test_a_cell_that_is_not_a_number_is_none(tmp_path: Path) -> None:
    rows, notes = read(tmp_path / "a.csv", b"Duration(us),Size(KB)\nN/A,\nnan,inf\nabc,-\n")
    assert [(row.time_us("Duration"), row.bytes("Size")) for row in rows] == [(None, None)] * 3
    assert notes == []


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_rows(content: bytes, tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", content) == ([], ["a.csv is empty."])


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    rows, notes = read(tmp_path / "a.csv", b"Name,Type,Time(us)\na,b,1\nc,d")
    assert [row.text("Name") for row in rows] == ["a"]
    assert notes == ["a.csv: its last line is truncated and was left out; 1 rows were read."]


def test_rows_that_are_too_short_are_counted(tmp_path: Path) -> None:
    rows, notes = read(tmp_path / "a.csv", b"Name,Time(us)\na\nb\nc,3\n")
    assert [row.time_us("Time") for row in rows] == [3.0]
    assert notes == ["a.csv: 2 damaged rows were left out; 1 were read."]


def test_a_size_without_a_unit_is_not_guessed(tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "a.csv", b"Size\n12\n")
    assert rows[0].bytes("Size") is None
    assert rows[0].number("Size") == 12


def test_only_the_first_rows_of_a_very_long_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "MAX_ROWS", 3)
    rows, notes = read(tmp_path / "a.csv", b"Name\n" + b"x\n" * 10)
    assert len(rows) == 3
    assert notes == ["a.csv: only the first 3 rows were read."]


def test_columns_are_found_whatever_their_case_and_unit(tmp_path: Path) -> None:
    content = "OP_Type, Task Duration(ns),Total Allocated(MB),Reduce Start(us),Reduce Start(us)\nConv,2500\t,2,1,3\n"
    (row,), _ = read(tmp_path / "a.csv", content.encode())
    assert row.text("Name", "op type") == "Conv"
    assert row.time_us("Duration", "Task Duration") == 2.5
    assert row.bytes("total allocated") == 2 << 20
    assert row.times_us("Reduce Start") == [1, 3]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030"])
def test_text_of_other_encodings_is_read(encoding: str, tmp_path: Path) -> None:
    (row,), notes = read(tmp_path / "a.csv", "Name,Time(us)\n卷积,3\n".encode(encoding))
    assert row.text("Name") == "卷积"
    assert notes == []


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    rows, notes = read(tmp_path / "a.csv", b"Name,Time(us)\n" + b"a,1\n" * 2000 + b"\xff\xff,2\n")
    assert rows[-1].time_us("Time") == 2
    assert len(rows) == 2001
    assert notes == ["a.csv: some bytes are not utf-8-sig; they were replaced."]


def test_cells_with_line_ends_and_commas_stay_whole(tmp_path: Path) -> None:
    (row,), _ = read(tmp_path / "a.csv", b'Name,Call Stack\nadd,"train.py(1): f;\r\nmain.py(2): g, h"\n')
    assert "main.py(2)" in row.text("Call Stack")


def test_a_table_has_numbers_and_a_note_where_it_is_shortened(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Name,Count,Avg(us)\n" + "x,2,1.5\n" * 4)
    notes: list[str] = []
    table = read_table(tmp_path / "a.csv", notes, most=2)
    assert table == {"columns": ["name", "count", "avg (us)"], "rows": [["x", 2, 1.5], ["x", 2, 1.5]]}
    assert notes == ["a.csv: the report has its first 2 rows."]
