"""Output into a pipe is a patch; applied, it gives the bytes that --out writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from migration.notebook_files import SET_UP, USE, WORDS, dump, notebook
from migration.small_project import migrated_project
from viaduct.migration.patch import as_patch

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


@pytest.mark.parametrize("tool", [GIT, PATCH])
@pytest.mark.parametrize("name", FILES, ids=ascii)
def test_a_patch_gives_the_very_bytes(tmp_path: Path, name: str, tool: list[str]) -> None:
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(FILES[name])
    (file,) = migrated_project(tmp_path, only=("dataset_drop_remainder",)).changed_files
    subprocess.run(["git", "init", "-q", os.fspath(tmp_path)], check=True)
    findings = b"\nChanged\n  tf1.dataset_drop_remainder  and what else is said\n"
    answer = subprocess.run(tool, cwd=tmp_path, input=as_patch(file) + findings, capture_output=True)
    assert answer.returncode == 0, answer.stderr
    assert target.read_bytes() == file.after != FILES[name]


def test_only_what_changed_and_a_few_lines_about_it_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(FILES["two_places.py"])
    (file,) = migrated_project(tmp_path, only=("dataset_drop_remainder",)).changed_files
    lines = as_patch(file).decode().splitlines()
    assert [line for line in lines if line.startswith("@@")] == ["@@ -1,6 +1,6 @@", "@@ -21,4 +21,4 @@"]
