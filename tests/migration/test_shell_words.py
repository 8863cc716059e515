"""The words of shell scripts."""

from __future__ import annotations

import pytest

from viaduct.migration.shell_words import find_uses, read_script


def words(text: str) -> list[list[str]]:
    return [[argument.text for argument in command] for command in read_script(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# only a comment", []),
        ("a b # c", [["a", "b"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a 'b c' \"d e\"", [["a", "'b c'", '"d e"']]),
        ('a "b \\" c" d', [["a", '"b \\" c"', "d"]]),
        ("a \\\n  b\nc", [["a", "b"], ["c"]]),
        ("a; b && c | d &", [["a"], ["b"], ["c"], ["d"]]),
        ("N=$(a b)", [["N=$"], ["a", "b"]]),
        ("a ${X:-1 2} b", [["a", "${X:-1 2}", "b"]]),
        ("a <<E\nnot a word\nE\nb", [["a"], ["b"]]),
        ("a <<-'E' c\n\tx\n\tE\nb", [["a", "c"], ["b"]]),
        ("a > out.txt 2>&1", [["a", "out.txt", "2"], ["1"]]),
        ("a\r\nb\r\n", [["a"], ["b"]]),
        ("a 'never closed", [["a", "'never closed"]]),
        ("cat <<E\nnever closed", [["cat"]]),
    ],
)
def test_words_of_commands(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


def test_places_are_those_of_the_text() -> None:
    text = "a  'b c'\n\tdd e\n"
    assert all(
        text[argument.start : argument.end] == argument.text
        for command in read_script(text).commands
        for argument in command
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("echo '$X'", 0),
        ("# $X", 0),
        ("echo \\$X", 0),
        ("cat <<'E'\n$X\nE\n", 0),
        ("echo $XY ${XY}", 0),
        ("cat <<E\n$X\nE\n", 1),
        ('echo "$X" ${X} ${X:-0} ${#X}', 4),
    ],
)
def test_where_a_value_is_taken(text: str, count: int) -> None:
    assert len(list(find_uses(read_script(text), "X"))) == count
