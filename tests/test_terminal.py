"""Control characters in names and source lines are shown, not sent to the terminal."""

from __future__ import annotations

import os

import pytest

from viaduct.terminal import align_columns, escape_controls


@pytest.mark.parametrize("text", ["train.py", "图像/训练.py", "été ß", "👩\u200d🔬.py", "a\\x1b", "क्\u200cष"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31mred", "\\x9b31mred"),
        ("a\nviaduct: fine\r\tb", "a\\nviaduct: fine\\r\\tb"),
        ("back\x08\x7f\x00", "back\\x08\\x7f\\x00"),
        ("evil\u202eyp.exe", "evil\\u202eyp.exe"),
        ("\u2066a\u2069\u200f\u061c", "\\u2066a\\u2069\\u200f\\u061c"),
        ("a\u2028b\u200bc\ufeff", "a\\u2028b\\u200bc\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        (os.fsdecode(b"caf\xe9.py"), "caf\\xe9.py"),
        ("\ud83d", "\\ud83d"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert escape_controls(text) == shown
    shown.encode()


def test_tabs_and_line_ends_stay_where_they_are_requested() -> None:
    assert escape_controls("\tx = 1\x1b[0m\n", keep="\n\t") == "\tx = 1\\x1b[0m\n"


def test_columns_of_numbers_are_aligned_to_the_right_and_lines_end_without_blanks() -> None:
    rows = [["name", "steps"], ["a", "5"], ["long", "1,000"]]
    assert align_columns(rows) == ["name  steps", "a         5", "long  1,000"]
    assert align_columns([["long", "recipe"], ["a", "b"]], text_columns=(0, 1)) == ["long  recipe", "a     b"]


def test_aligned_columns_have_no_control_characters() -> None:
    assert align_columns([["name"], ["\x1b[2J"]]) == ["name", "\\x1b[2J"]
