"""Notices on stderr: few lines, and how many were left out."""

from __future__ import annotations

import pytest

from viaduct.data.notices import describe_error, join_first, print_first_notices


@pytest.mark.parametrize("count", [0, 1, 10])
def test_up_to_ten_notices_are_all_printed_and_nothing_else(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"warning {number}" for number in range(count)]
    print_first_notices(lines, "more warnings")
    captured = capsys.readouterr()
    assert captured.err.splitlines() == lines
    assert captured.out == ""


def test_of_many_notices_ten_are_printed_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    print_first_notices([str(number) for number in range(1_234)], "more warnings")
    assert capsys.readouterr().err.splitlines() == [*map(str, range(10)), "1,224 more warnings"]


def test_names_are_joined_and_those_left_out_counted() -> None:
    assert join_first([]) == ""
    assert join_first(["a", "b"]) == "a, b"
    assert join_first(list("abcde")) == "a, b, c, d, e"
    assert join_first(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert join_first(list("abc"), most=1) == "a and 2 more"


def test_a_reason_has_neither_error_number_nor_path() -> None:
    assert describe_error(OSError(2, "No such file or directory", "/data/x")) == "No such file or directory"
    assert describe_error(OSError("timed out")) == "timed out"
    assert describe_error(ValueError("line 3 has no label")) == "line 3 has no label"
