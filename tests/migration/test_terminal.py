"""On a terminal the diff is coloured, with changes within a line marked; elsewhere it is a plain patch."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from migration.small_project import make_project, migrated_project
from viaduct.migration.diffing import render_patch
from viaduct.migration.results import Outcome
from viaduct.migration.terminal import show_diffs

COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    return migrated_project(make_project(tmp_path))


def drawn(outcome: Outcome, on_terminal: bool) -> str:
    stream = io.StringIO()
    system = "standard" if on_terminal else None
    show_diffs(Console(file=stream, soft_wrap=True, force_terminal=on_terminal, color_system=system), outcome)  # type: ignore[arg-type]
    return stream.getvalue()


def test_what_changed_within_a_line_is_marked(outcome: Outcome) -> None:
    assert "ds.batch(32\x1b[0m\x1b[7;32m, drop_remainder=True\x1b[0m\x1b[32m)" in drawn(outcome, True)


def test_both_ways_say_the_same(outcome: Outcome) -> None:
    patch = "".join(render_patch(file).decode() for file in outcome.changed_files)
    assert drawn(outcome, False) == patch
    assert COLOUR.sub("", drawn(outcome, True)) == patch
