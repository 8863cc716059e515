"""Notebooks: only the code that changed is written anew; magics, other languages and outputs stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migration.small_project import migrated_project
from viaduct.migration import notebooks
from viaduct.migration.notebooks import NotMigrated, put_back, read

METADATA = {"kernelspec": {"language": "python", "name": "python3", "display_name": "Python 3"}}


def code(text: str, as_list: bool = True) -> dict[str, Any]:
    source: Any = text.splitlines(keepends=True) if as_list else text
    outputs = [{"data": {"text/plain": ["é 1"]}, "output_type": "display_data"}]
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": source}


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5} | more


def dump(content: object) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


WORDS = {"cell_type": "markdown", "metadata": {}, "source": ["# tf.data.TFRecordDataset([]).batch(3)\n"]}
SET_UP = code("%matplotlib inline\n!pip install x\nimport tensorflow as tf\nfiles = !ls *.tfrecord")
USE = code("ds = tf.data.TFRecordDataset(files)\nds = ds.batch(3)  # per step\nds?")
SHELL = code("%%bash\nds.batch(3)\n")


def migrate(tmp_path: Path, content: object) -> Any:
    (tmp_path / "n.ipynb").write_bytes(content if isinstance(content, bytes) else dump(content))
    (file,) = migrated_project(tmp_path, only=("dataset_drop_remainder",)).files
    return file


def test_names_resolve_across_cells_and_only_the_changed_cell_is_written_anew(tmp_path: Path) -> None:
    before = notebook(WORDS, SET_UP, SHELL, USE)
    file = migrate(tmp_path, before)
    after = json.loads(file.after)
    new = "ds = tf.data.TFRecordDataset(files)\nds = ds.batch(3, drop_remainder=True)  # per step\nds?"
    assert "".join(after["cells"][3]["source"]) == new
    assert after["cells"][:3] == before["cells"][:3]
    assert file.after == dump(before).replace(b"ds.batch(3)  # per", b"ds.batch(3, drop_remainder=True)  # per")


def test_findings_name_the_cell(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(WORDS, SET_UP, SHELL, USE))
    assert [file.where(finding.line) for finding in file.findings] == ["n.ipynb cell 4:2"]
    assert "files = !ls *.tfrecord" in file.new, "shown as it is written"


def test_a_source_that_is_one_string_stays_one(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(code("import tensorflow as tf\n"), code(USE["source"][0] + "ds.batch(2)", False)))
    assert json.loads(file.after)["cells"][1]["source"].endswith("ds.batch(2, drop_remainder=True)")


@pytest.mark.parametrize("layout", [{"indent": 2}, {"indent": None}, {"indent": 1, "ensure_ascii": True}])
def test_the_layout_of_the_file_stays(tmp_path: Path, layout: dict[str, Any]) -> None:
    layout = {"ensure_ascii": False} | layout
    before = json.dumps(notebook(SET_UP, USE), **layout).encode()
    expected = before.replace(b"ds.batch(3)  # per", b"ds.batch(3, drop_remainder=True)  # per")
    assert migrate(tmp_path, before).after == expected


def test_a_percent_sign_within_an_expression_is_no_magic() -> None:
    text = 'print("%d"\n      % 3)\nx = """\n%not magic\n!nor this\n"""\ny = 7 \\\n% 4\n'
    held = read(dump(notebook(code(text + "%time f()")))).held
    assert held == ["%time f()"]


def test_magics_within_blocks_keep_their_place() -> None:
    text = "if True:\n    !ls\n    %cd x\nelse:\n\tget_ipython?\n"
    found = read(dump(notebook(code(text))))
    compile(found.text, "joined", "exec")
    assert put_back(found, found.text) == dump(notebook(code(text)))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "not a notebook"),
        (b"[]", "no cells"),
        (dump({"nbformat": 3, "worksheets": []}), "nbformat 3"),
        (dump(notebook(SET_UP, USE, nbformat=3)), "nbformat 3"),
        (dump(notebook(SET_UP, USE)).replace(b"\n", b"\r\n", 3), "laid out"),
        (dump(notebook(USE, metadata={"kernelspec": {"language": "R"}})), "written in R"),
        (b'{"cells":   []}', "laid out"),
    ],
)
def test_what_is_refused_says_why(tmp_path: Path, content: bytes, word: str) -> None:
    file = migrate(tmp_path, content)
    assert word in file.reason
    assert not file.changed
    assert file.findings[0].status == "manual"
    assert not file.why("zh").isascii()


def test_a_cell_that_does_not_parse_leaves_the_notebook_alone(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(SET_UP, USE, code("print 'two'")))
    assert not file.changed
    assert "line" in file.reason


@pytest.mark.parametrize("indent", [1, 4])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_line_ends_that_git_made_stay(tmp_path: Path, indent: int, ending: str) -> None:
    before = (json.dumps(notebook(WORDS, SET_UP, USE), indent=indent) + ending).replace("\n", "\r\n").encode()
    file = migrate(tmp_path, before)
    assert file.after == before.replace(b"ds.batch(3)  # per", b"ds.batch(3, drop_remainder=True)  # per")


def test_a_change_that_loses_a_cell_is_refused() -> None:
    found = read(dump(notebook(SET_UP, USE)))
    with pytest.raises(NotMigrated, match="across its cells"):
        put_back(found, found.text.replace(notebooks.MARK.format(number=2) + "\n", ""))
    with pytest.raises(NotMigrated, match="across its cells"):
        put_back(found, found.text.replace("pass  # ipython-line 0\n", ""))


def test_a_second_run_changes_no_byte(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(WORDS, SET_UP, USE))
    assert not migrate(tmp_path, file.after).changed


def test_a_notebook_without_code_is_left_alone(tmp_path: Path) -> None:
    assert not migrate(tmp_path, notebook(WORDS)).findings
