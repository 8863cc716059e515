"""Alignment of lines in a diff, and the marks within them; the patch that a pipe gets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from migration.notebook_files import SET_UP, USE, WORDS, dump, notebook
from migration.small_project import migrated_project
from viaduct.migration.diffing import AlignedLine, compare_texts, mark_differences, omit_unchanged_rows, render_patch

TABS = b"import tensorflow as tf\nif True:\n\tds = tf.data.TFRecordDataset([])\n\tds = ds.batch(3)\t# \xc3\xa9\n"
LONG = b"import tensorflow as tf\nds = tf.data.TFRecordDataset([])\na = ds.batch(3)\n" + b"x = 1\n" * 20
FILES = {
    "tabs.py": TABS,
    "crlf.py": TABS.replace(b"\n", b"\r\n"),
    "mixed.py": TABS.replace(b"\n", b"\r\n", 2),
    "cr.py": TABS.replace(b"\n", b"\r"),
    "cr_within.py": TABS.replace(b"\n", b"\r", 1),
    "unended.py": TABS.rstrip(),
    "latin.py": b"# coding: latin-1\n" + TABS.replace(b"\xc3", b""),
    "bom.py": b"\xef\xbb\xbf" + TABS,
    "page.py": LONG.replace(b"x = 1\n", b"x = 1\n\x0c\n", 3),
    "two_places.py": LONG + b"b = ds.batch(4)\n",
    "a folder/a name.py": TABS,
    'quoted "name"\\.py': TABS,
    "caf\udce9.py": TABS,
    "n.ipynb": dump(notebook(WORDS, SET_UP, USE)),
    "crlf.ipynb": dump(notebook(WORDS, SET_UP, USE)).replace(b"\n", b"\r\n").rstrip(),
    "one_line.ipynb": json.dumps(notebook(WORDS, SET_UP, USE)).encode(),
}
GIT = ["git", "-c", "core.autocrlf=false", "apply", "-p0", "-"]
PATCH = pytest.param(["patch", "-p0"], marks=pytest.mark.skipif(shutil.which("patch") is None, reason="no patch"))


def image(rows: list[AlignedLine]) -> list[tuple[str, int | None, int | None]]:
    return [(row.kind, row.old, row.new) for row in rows]


def test_equal_texts_are_one_for_one() -> None:
    assert image(compare_texts("a\nb\n", "a\nb\n", [1, 2])) == [("same", 1, 1), ("same", 2, 2)]


def test_a_changed_line_stands_beside_what_it_was() -> None:
    rows = compare_texts("a\nf(x)\nc\n", "a\nf(x, y)\nc\n", [1, 2, 3])
    assert image(rows) == [("same", 1, 1), ("changed", 2, 2), ("same", 3, 3)]
    assert [(piece.text, piece.marked) for piece in rows[1].new_pieces] == [("f(x", False), (", y", True), (")", False)]


def test_lines_that_stem_from_one_line_are_a_change_and_additions() -> None:
    rows = compare_texts("with s(config=c):\n", "c = prepare()\nc.x = 1\nwith s(config=c2):\n", [1, 1, 1])
    assert image(rows) == [("added", None, 1), ("added", None, 2), ("changed", 1, 3)]


def test_removed_lines_have_nobody_beside_them() -> None:
    rows = compare_texts("with d('/gpu:0'):\n    x = 1\n    y = 2\nz\n", "x = 1\ny = 2\nz\n", [2, 3, 4])
    assert image(rows) == [("removed", 1, None), ("changed", 2, 1), ("changed", 3, 2), ("same", 4, 3)]


def test_every_line_of_both_texts_is_shown_once() -> None:
    old, new, original_lines = "a\nb\nc\nd\n", "x\nb2\ny\nd\nd\nz\n", [1, 2, 3, 4, 4, 4]
    rows = compare_texts(old, new, original_lines)
    assert [row.old for row in rows if row.old] == [1, 2, 3, 4]
    assert [row.new for row in rows if row.new] == [1, 2, 3, 4, 5, 6]
    assert "".join(f"{row.old_text}\n" for row in rows if row.old) == old
    assert "".join(f"{row.new_text}\n" for row in rows if row.new) == new


def test_lines_as_python_counts_them() -> None:
    rows = compare_texts("a\x0cb\nc\n", "a\x0cb\nC\n", [1, 2])
    assert image(rows) == [("same", 1, 1), ("removed", 2, None), ("added", None, 2)]


def test_a_very_long_line_is_not_compared_letter_by_letter() -> None:
    left, right = mark_differences("x" * 5000, "x" * 5001)
    assert left[0].marked
    assert right[0].marked


def test_only_what_lies_about_a_change_or_a_finding_is_shown() -> None:
    text = "".join(f"{number}\n" for number in range(1, 31))
    rows = compare_texts(text, text.replace("15\n", "fifteen\n"), list(range(1, 31)))
    shown = [line if isinstance(line, int) else line.old or line.new for line in omit_unchanged_rows(rows, {28})]
    assert shown[:9] == [11, 12, 13, 14, 15, 15, 16, 17, 18]
    assert shown[9:] == [6, 25, 26, 27, 28, 29, 30]


@pytest.mark.parametrize("tool", [GIT, PATCH])
@pytest.mark.parametrize("name", FILES, ids=ascii)
def test_a_patch_gives_the_very_bytes(tmp_path: Path, name: str, tool: list[str]) -> None:
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(FILES[name])
    (file,) = migrated_project(tmp_path, only=("dataset_drop_remainder",)).changed_files
    subprocess.run(["git", "init", "-q", os.fspath(tmp_path)], check=True)
    findings = b"\nChanged\n  tf1.dataset_drop_remainder  and what else is said\n"
    answer = subprocess.run(tool, cwd=tmp_path, input=render_patch(file) + findings, capture_output=True)
    assert answer.returncode == 0, answer.stderr
    assert target.read_bytes() == file.after != FILES[name]


def test_only_what_changed_and_a_few_lines_about_it_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(FILES["two_places.py"])
    (file,) = migrated_project(tmp_path, only=("dataset_drop_remainder",)).changed_files
    lines = render_patch(file).decode().splitlines()
    assert [line for line in lines if line.startswith("@@")] == ["@@ -1,6 +1,6 @@", "@@ -21,4 +21,4 @@"]
