"""Checks of the path of a result: nothing of the user's is overwritten, and a bad path is found before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viaduct.data.output_files import check_output, write_result
from viaduct.data.png import SIGNATURE
from viaduct.errors import BadData, BadValue


def check(out: Path) -> None:
    check_output(out, ".png", SIGNATURE, "a PNG")


@pytest.mark.parametrize("content", [b"", b"my notes", SIGNATURE[:-1]])
def test_a_file_that_is_no_earlier_result_is_refused_and_stays(content: bytes, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    out.write_bytes(content)
    with pytest.raises(BadValue, match=r"sheet\.png is there already and is not a PNG; it stays[\s\S]*with --out"):
        check(out)
    assert out.read_bytes() == content


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sheet.png")
    with pytest.raises(BadValue, match="is not a PNG"):
        check(tmp_path / "sheet.png")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sheet.png").mkdir()
    with pytest.raises(BadValue, match="is not a PNG"):
        check(tmp_path / "sheet.png")


def test_another_suffix_is_refused_with_the_name_to_take(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"must end in \.png\.\n  Try: --csv sheet\.jpg\.png"):
        check_output(tmp_path / "sheet.jpg", ".png", SIGNATURE, "a PNG", "--csv")


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=f"there is no folder {tmp_path}/absent"):
        check(tmp_path / "absent" / "sheet.png")
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadValue, match=f"the folder {tmp_path} may not be written to"):
        check(tmp_path / "sheet.png")


def test_an_earlier_result_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "SHEET.PNG"
    check(out)
    for content in (SIGNATURE + b"old", SIGNATURE + b"new"):
        write_result(out, content)
        check(out)
    assert out.read_bytes() == SIGNATURE + b"new"
    assert os.listdir(tmp_path) == ["SHEET.PNG"]


def test_a_result_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"x\.png cannot be written: No such file or directory\.$"):
        write_result(tmp_path / "absent" / "x.png", SIGNATURE)
