"""Notebooks: only the code that changed is written anew; magics, other languages and outputs stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migration.notebook_files import SET_UP, USE, WORDS, code, dump, notebook
from migration.small_project import migrated_project
from viaduct.scripts import notebooks
from viaduct.scripts.notebooks import NotebookError, parse_notebook, restore_cells

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
    assert [file.locate(finding.line) for finding in file.findings] == ["n.ipynb cell 4:2"]
    assert "files = !ls *.tfrecord" in file.new_text, "shown as it is written"


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
    originals = parse_notebook(dump(notebook(code(text + "%cd x")))).originals
    assert originals == ["%cd x"]


def test_magics_within_blocks_keep_their_place() -> None:
    text = "if True:\n    !ls\n    %cd x\nelse:\n\tget_ipython?\n"
    found = parse_notebook(dump(notebook(code(text))))
    compile(found.text, "joined", "exec")
    assert restore_cells(found, found.text) == dump(notebook(code(text)))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "not a notebook"),
        (b"[]", "no cells"),
        (dump({"nbformat": 2, "worksheets": []}), "nbformat 2"),
        (dump({"nbformat": 4}), "no cells"),
        (dump(notebook(USE, metadata={"kernelspec": {"language": "R"}})), "written in R"),
    ],
)
def test_what_is_refused_says_why(tmp_path: Path, content: bytes, word: str) -> None:
    file = migrate(tmp_path, content)
    assert word in file.unread_reason
    assert not file.changed
    assert file.findings[0].status == "manual"
    assert not file.reason_in("zh").isascii()


def test_a_cell_that_does_not_parse_is_left_alone_and_named(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(SET_UP, USE, code("print 'two'\n"), code("tensorflow is a library\n")))
    after = json.loads(file.after)
    assert "drop_remainder=True" in "".join(after["cells"][1]["source"])
    assert "".join(after["cells"][2]["source"]) == "print 'two'\n"
    output = [(finding.risk, file.locate(finding.line)) for finding in file.findings if finding.status == "manual"]
    assert output == [("low", "n.ipynb cell 3:1"), ("high", "n.ipynb cell 4:1")]


@pytest.mark.parametrize("indent", [1, 4])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_line_ends_that_git_made_stay(tmp_path: Path, indent: int, ending: str) -> None:
    before = (json.dumps(notebook(WORDS, SET_UP, USE), indent=indent) + ending).replace("\n", "\r\n").encode()
    file = migrate(tmp_path, before)
    assert file.after == before.replace(b"ds.batch(3)  # per", b"ds.batch(3, drop_remainder=True)  # per")


def test_a_change_that_loses_a_cell_is_refused() -> None:
    found = parse_notebook(dump(notebook(SET_UP, USE)))
    with pytest.raises(NotebookError, match="across its cells"):
        restore_cells(found, found.text.replace(notebooks.CELL_COMMENT.format(number=2) + "\n", ""))
    with pytest.raises(NotebookError, match="across its cells"):
        restore_cells(found, found.text.replace("pass  # ipython-line 0\n", ""))


def test_a_second_run_changes_no_byte(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(WORDS, SET_UP, USE))
    assert not migrate(tmp_path, file.after).changed


def test_a_notebook_without_code_is_left_alone(tmp_path: Path) -> None:
    assert not migrate(tmp_path, notebook(WORDS)).findings


PIPELINE = "import tensorflow as tf\nds = tf.data.TFRecordDataset(f)\nds = ds.batch(3)\n"

MIGRATED = PIPELINE.replace("batch(3)", "batch(3, drop_remainder=True)")


@pytest.mark.parametrize(
    "line",
    [
        "!wget -q \\\n  http://x/y \\\n  -O z\n",
        "if 1:\n    !wget -q \\\n      http://x/y\n",
        "for i in a:\n  for j in b:\n    !echo $i \\\n        $j\n",
        "%run x.py \\\n   --a 1\n",
        "x = !ls \\\n  -l\n",
        "a, b = !ls\nd['x'] = !ls\nx += !ls\nself.x=%env A\n",
        "?tf.Session\ntf.data?\ntf.data??\ntf.data ?\nfoo(1).bar?\nx[0]?\ntf.*Session*?\n",
        "!echo (\n!echo \"it's\n!!ls\n",
        "if x: !ls\nelse: %cd y\n",
        "cd /tmp\npip install -q tensorflow==1.15\nls -l\n",
        ", f a b\n; f a b\n/ f 1\n",
        "%time ds2 = g(3)\n%timeit -n 3 g(4)\n",
        "pass  # ipython-line 0\n# %% cell 1\n",
        's = """\n!not one\n"""\n!one\n',
        '#@title x { display-mode: "form" }\nx = 1 #@param {type:"slider"}\n',
        "%%time\n",
        "\n\n%%capture out\n",
        "await foo()\n",
    ],
)
@pytest.mark.parametrize("as_list", [True, False])
def test_ipython_lines_are_restored_unchanged(tmp_path: Path, line: str, as_list: bool) -> None:
    cell_magic = "%%" in line and "# %%" not in line
    text = line + PIPELINE if cell_magic else PIPELINE + line
    file = migrate(tmp_path, notebook(code("!ls\n"), code(text, as_list)))
    assert not file.unread_reason
    source = json.loads(file.after)["cells"][1]["source"]
    assert isinstance(source, list) is as_list
    assert "".join(source) == text.replace(PIPELINE, MIGRATED)
    assert {finding.status for finding in file.findings} == {"changed"}


def test_code_behind_a_timing_magic_is_migrated_too(tmp_path: Path) -> None:
    text = "import tensorflow as tf\nif 1:\n    %time ds = tf.data.TFRecordDataset(f).batch(3)\n"
    file = migrate(tmp_path, notebook(code(text)))
    after = "".join(json.loads(file.after)["cells"][0]["source"])
    assert after == text.replace("batch(3)", "batch(3, drop_remainder=True)")


@pytest.mark.parametrize("magic", ["%%bash\nfor x in", "%%html\n<b>", "%%foo\n$$$"])
def test_cells_in_other_languages_are_kept_unchanged(tmp_path: Path, magic: str) -> None:
    file = migrate(tmp_path, notebook(code(magic), code(PIPELINE)))
    assert {finding.status for finding in file.findings} == {"changed"}


def test_a_script_that_a_cell_writes_needs_manual_review(tmp_path: Path) -> None:
    file = migrate(tmp_path, notebook(code("%%writefile train.py\n" + PIPELINE), code(PIPELINE)))
    assert any(
        "%%writefile are not analysed" in finding.message for finding in file.findings if finding.status == "manual"
    )
    assert json.loads(file.after)["cells"][0]["source"] == ("%%writefile train.py\n" + PIPELINE).splitlines(True)


WRITTEN = json.dumps(notebook(code(PIPELINE + "# é a/b\n"), code("# é\n")), indent=1)

LAYOUTS = {
    "an indent of three": json.dumps(notebook(code(PIPELINE)), indent=3),
    "an indent of none": json.dumps(notebook(code(PIPELINE)), indent=0),
    "sorted keys": json.dumps(notebook(code(PIPELINE)), indent=1, sort_keys=True),
    "spaces around colons": json.dumps(notebook(code(PIPELINE)), indent=2, separators=(", ", " : ")),
    "one line": json.dumps(notebook(code(PIPELINE)), separators=(",", ":")),
    "white space around": "\n " + json.dumps(notebook(code(PIPELINE)), indent=1) + " \n\n",
    "escaped slashes": WRITTEN.replace("/", "\\/"),
    "two ways to write a letter": WRITTEN.replace("\\u00e9", "é", 1),
    "capital escapes": WRITTEN.replace("\\u00e9", "\\u00E9"),
    "short lists": WRITTEN.replace('"metadata": {}', '"metadata":{}'),
    "some lines of Windows": WRITTEN.replace("\n", "\r\n", 3),
    "a key twice": WRITTEN.replace('"metadata": {}', '"metadata": {}, "metadata": {}'),
    "numbers in other forms": WRITTEN.replace('"nbformat_minor": 5', '"nbformat_minor": 5.0, "x": 1E5, "y": NaN'),
    "Colab's metadata": json.dumps(notebook(code(PIPELINE), metadata={"colab": {}, "accelerator": "GPU"}), indent=2),
    "a kernel of one's own": json.dumps(notebook(code(PIPELINE), metadata={"kernelspec": {"name": "tf115"}})),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_every_byte_but_the_changed_line_stays(tmp_path: Path, layout: str, bom: bytes) -> None:
    before = bom + LAYOUTS[layout].encode()
    assert migrate(tmp_path, before).after == before.replace(b"batch(3)", b"batch(3, drop_remainder=True)")


def test_notebooks_of_version_3_keep_their_worksheets(tmp_path: Path) -> None:
    def cell(source: Any) -> dict[str, Any]:
        return {"cell_type": "code", "collapsed": False, "input": source, "language": "python", "outputs": []}

    first, *other_lines = PIPELINE.splitlines(keepends=True)
    sheets = [{"cells": [WORDS, cell(first)], "metadata": {}}, {"cells": [cell(other_lines)]}]
    before = dump({"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": sheets})
    file = migrate(tmp_path, before)
    assert file.after == before.replace(b"ds.batch(3)\\n", b"ds.batch(3, drop_remainder=True)\\n")
    assert [file.locate(finding.line) for finding in file.findings] == ["n.ipynb cell 3:2"]


def test_a_cell_of_one_line_that_becomes_two_keeps_its_format() -> None:
    for indent, between in ((1, '\\n",\n    "'), (None, '\\n", "')):
        found = parse_notebook(json.dumps(notebook(code("a = 1\n")), indent=indent).encode())
        written = restore_cells(found, found.text.replace("a = 1", "a = 1\nb = 2")).decode()
        assert f"a = 1{between}b = 2" in written
        assert json.loads(written)["cells"][0]["source"] == ["a = 1\n", "b = 2\n"]
