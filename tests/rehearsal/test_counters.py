"""Counters in changed lines: the unit of each change, lines without a counter, and unchanged results of the code."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest

from viaduct.rehearsal.counters import COUNTERS_NAME, INCREMENT_NAME, Span, find_changed_units, insert_counters

SOURCE = '''\
"""What it is."""
from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nothing_of_that_name

# a comment
value = 1 if TYPE_CHECKING else 2


class Holder:
    """A docstring."""

    pick = lambda self, given: given and 5 or [number for number in range(3) if number > 1]


def choose(given, rate=0.1):
    """Another."""
    if given > 2:
        return "large"
    elif 0 < given < 2:
        return "small"
    else:
        return f"{given}"


try:
    1 / 0
except ZeroDivisionError:
    found = "zero"
finally:
    value += 1
answers = [choose(3), choose(1), Holder().pick(0), Holder().pick(1), Holder.__doc__, choose.__doc__, value, found]
'''


def count_lines(
    monkeypatch: pytest.MonkeyPatch, source: str, spans: list[Span]
) -> tuple[dict[int, int], dict[str, Any]]:
    """Return how often each changed line was executed, and the names that the instrumented code defined."""
    tree = ast.parse(source)
    edited = find_changed_units(tree, source, spans)
    hits = [0] * len(edited.units)

    def hit(number: int) -> None:
        hits[number] += 1

    monkeypatch.setattr(builtins, COUNTERS_NAME, hits, raising=False)
    monkeypatch.setattr(builtins, INCREMENT_NAME, hit, raising=False)
    made: dict[str, Any] = {"__name__": "counted"}
    exec(compile(insert_counters(tree, edited, 0), "counted.py", "exec"), made)
    return {
        line: min(hits[number] for number in numbers) for line, numbers in edited.unit_indices_by_line.items()
    }, made


def test_counters_in_every_line_change_nothing_and_count_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SOURCE.splitlines()
    counts, made = count_lines(monkeypatch, SOURCE, [Span(line) for line in range(1, len(lines) + 1)])
    plain: dict[str, Any] = {"__name__": "counted"}
    exec(compile(SOURCE, "counted.py", "exec"), plain)
    assert made["answers"] == plain["answers"]
    text = {lines[line - 1].strip(): count for line, count in counts.items()}
    assert not any(line.startswith(('"""', "#", "import nothing")) for line in text), "no code"
    assert text['return f"{given}"'] == 0
    assert (text['return "large"'], text['return "small"'], text["if given > 2:"]) == (1, 1, 2)
    assert text["value = 1 if TYPE_CHECKING else 2"] == 0, "one of its branches never ran"
    assert text["except ZeroDivisionError:"] == 1


@pytest.mark.parametrize(
    ("line", "part", "count"),
    [
        ("x = 1 if flag else 22", "1", 1),
        ("x = 1 if flag else 22", "22", 0),
        ("x = 1 if flag else 22", "flag", 1),
        ("x = flag or unknown_name", "unknown_name", 0),
        ("x = not flag and 7", "7", 0),
        ("x = lambda: 7", "7", 0),
        ("x = [7 for _ in ()]", "7", 0),
        ("x = [n for n in (1, 2) if n > 7]", "7", 2),
        ("assert flag, 'message'", "flag", 1),
        ("ж = 1 if flag else 22", "22", 0),
        ("if not flag: x = 7", "7", 0),
        ("def later(rate=7): return 8", "7", 1),
        ("def later(rate=7): return 8", "8", 0),
    ],
)
def test_a_change_belongs_to_the_innermost_part_that_may_be_skipped(
    line: str, part: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = line.index(part)
    counts, _ = count_lines(monkeypatch, f"flag = True\n{line}\n", [Span(2, start, start + len(part))])
    assert counts == {2: count}


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("if not TYPE_CHECKING:\n    x = 7\n", {2: 1}),
        ("if TYPE_CHECKING:\n    x = 7\nelse:\n    x = 8\n", {3: 1, 4: 1}),
    ],
)
def test_code_beside_a_block_for_type_checkers_is_counted(
    source: str, counts: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = range(2, len(source.splitlines()) + 1)  # without the `if`
    found, _ = count_lines(monkeypatch, f"TYPE_CHECKING = False\n{source}", [Span(line + 1) for line in lines])
    assert {line - 1: count for line, count in found.items()} == counts


def test_a_form_feed_does_not_shift_later_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, _ = count_lines(monkeypatch, "\x0cflag = True\nx = 1 if flag else 22\n", [Span(2, 19, 21)])
    assert counts == {2: 0}
