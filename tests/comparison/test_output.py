"""The output folder of a comparison: all files or none."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from comparison.drift_sample import sample_drift, sample_rows
from viaduct.comparison.output import check_output_folder, is_comparison_output, write_drift, write_output
from viaduct.comparison.records import Explanation
from viaduct.comparison.summary import make_summary
from viaduct.errors import BadValue, DiskFull

SUMMARY = {"kind": "drift", "verdict": "good"}


def write_text(text: str) -> Callable[[Path], int]:
    return lambda path: path.write_text(text)


def test_other_content_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"kind": "tuning"}')
    with pytest.raises(BadValue, match="nor an earlier comparison"):
        check_output_folder(tmp_path, force=False)
    with pytest.raises(BadValue, match="is a file"):
        check_output_folder(tmp_path / "summary.json", force=True)
    check_output_folder(tmp_path, force=True)
    check_output_folder(tmp_path / "new", force=False)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"kind": "drif"}', "[" * 100_000])
def test_another_summary_is_no_earlier_comparison(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert not is_comparison_output(tmp_path)


def test_a_full_disk_leaves_the_earlier_comparison_as_it_was(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out"
    write_output(out, SUMMARY, {"drift.csv": write_text("first")})
    with pytest.raises(DiskFull, match="disk is full"):
        write_output(out, SUMMARY, {"drift.csv": write_text("second"), "report.html": fail})
    assert (out / "drift.csv").read_text() == "first"
    assert sorted(path.name for path in out.iterdir()) == ["drift.csv", "summary.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_stale_table_is_removed_and_other_files_stay(tmp_path: Path) -> None:
    write_output(tmp_path / "out", SUMMARY, {"drift.csv": write_text("rows"), "report.html": write_text("page")})
    (tmp_path / "out" / "notes.txt").write_text("mine")
    check_output_folder(tmp_path / "out", force=False)
    write_output(tmp_path / "out", SUMMARY, {"report.html": write_text("curves")})
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["notes.txt", "report.html", "summary.json"]


def test_a_comparison_of_tensors_leaves_page_table_and_summary(tmp_path: Path) -> None:
    rows = sample_rows(1, most=20)
    drift = sample_drift(rows, Explanation("no origin", None))
    write_drift(drift, make_summary(drift), tmp_path / "out")
    assert (tmp_path / "out" / "drift.csv").read_text().count("\n") >= len(rows)
    assert rows[0].tensor_index in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["kind"] == "drift"
