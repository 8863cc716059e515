"""A notebook runs as its code cells in their order; what is left out, what is refused, and which cell a line is in."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from viaduct.errors import BadValue
from viaduct.scripts.notebook_runs import locate_line, parse_source, read_source


def notebook(*cells: str) -> bytes:
    """Code cells with a text before each."""
    made = []
    for source in cells:
        made.append({"cell_type": "markdown", "metadata": {}, "source": "text"})
        code = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        made.append(code)
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}).encode()


def test_a_script_is_its_own_source() -> None:
    assert read_source("train.py", b"%x") == b"%x"


@pytest.mark.parametrize(
    "magic",
    [
        *("%matplotlib inline", "%load_ext autoreload", "%autoreload 2", "!pip install timm", "%pip install timm"),
        *("!nvidia-smi", "!python -m pip install x", "pip install x", "?print", "print?", "%config Inline.dpi = 2"),
        *("!pip list | grep torch", "!pip install x && nvidia-smi"),
        "if True:\n    !ls",
    ],
)
def test_lines_that_only_display_or_install_are_skipped(magic: str) -> None:
    names: dict[str, object] = {}
    exec(read_source("a.ipynb", notebook("value = 1", f"{magic}\nvalue += 1")), names)
    assert names["value"] == 2


def test_a_timed_cell_is_run() -> None:
    names: dict[str, object] = {}
    exec(read_source("a.ipynb", notebook("%%time\nvalue = 1", "%time value += 1")), names)
    assert names["value"] == 2


@pytest.mark.parametrize(
    ("magic", "place"),
    [
        ("x = 1\n!wget http://example.org/x", "cell 4, line 2"),
        ("files = !ls", "cell 4, line 1"),
        ("%run other.py", "cell 4, line 1"),
        ("%cd data", "cell 4, line 1"),
        ("!echo x > note.txt", "cell 4, line 1"),
        ("!pip install x && python prepare.py", "cell 4, line 1"),
        ("!ls; rm -r old", "cell 4, line 1"),
        ("%%bash\nls", "cell 4"),
        ("%%writefile net.py\nx = 1", "cell 4"),
        ("def f(:", "cell 4"),
        ("%matplotlib inline\nprint 'x'", "cell 4"),
        ("!pip install timm\ndef f(:", "cell 4"),
        ("%%time\nprint 'x'", "cell 4"),
    ],
)
def test_lines_that_other_cells_may_need_are_refused_with_their_cell(magic: str, place: str) -> None:
    with pytest.raises(BadValue) as refused:
        read_source("folder/a.ipynb", notebook("x = 1", magic))
    assert f"a.ipynb {place} cannot be run" in str(refused.value)


def test_a_cell_that_only_displays_is_skipped() -> None:
    names: dict[str, object] = {}
    exec(read_source("a.ipynb", notebook("value = 1", "%%html\n<b>x</b>")), names)
    assert names["value"] == 1


def test_what_is_no_notebook_is_refused() -> None:
    with pytest.raises(BadValue, match=r"a\.ipynb is not a notebook"):
        read_source("a.ipynb", b"import torch")


def test_a_line_is_recognised_by_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(notebook("x = 1\ny = 2", "z = 3\n1 / 0"))
    lines = read_source(path, path.read_bytes()).decode().splitlines()
    assert locate_line(path, lines.index("1 / 0") + 1) == f"{path} cell 4, line 2"
    assert locate_line("train.py", 3) == "train.py:3"


def test_a_notebook_is_parsed_as_its_cells_and_not_as_its_json(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_bytes(notebook("%matplotlib inline\nx = 1", "x.close()"))
    assert [ast.unparse(node) for node in parse_source(path).body] == ["pass", "x = 1", "x.close()"]


def test_a_script_that_is_not_utf8_is_parsed_too(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("# coding: latin-1\nx = 'ä'\n".encode("latin-1"))
    assert len(parse_source(path).body) == 1
