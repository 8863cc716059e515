"""Import graph: which file a dotted name stands for, and which files run together."""

from __future__ import annotations

import pytest

from viaduct.migration.import_graph import Modules, find_programs, scan_imports
from viaduct.migration.project import survey

TF = b"import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("name", "importer", "found"),
    [
        ("tensorflow.contrib.data", "train.py", None),
        ("os.path", "train.py", None),
        ("model", "src/train.py", "src/model.py"),
        ("src.model", "train.py", "src/model.py"),
        ("net.deep", "src/train.py", "src/net/deep.py"),
        ("company.lib.data", "train.py", "data.py"),
        ("deep", "train.py", "src/net/deep.py"),  # the only one of that name
        ("twice", "train.py", None),
    ],
)
def test_a_name_stands_for_one_file(name: str, importer: str, found: str | None) -> None:
    files = ["train.py", "data.py", "path.py", "src/train.py", "src/model.py", "src/net/deep.py"]
    assert Modules([*files, "a/twice.py", "b/twice.py"]).find(name, importer) == found


def test_imports_of_a_text_are_read_without_parsing_it() -> None:
    text = b"import a, b.c as d\nfrom . import e\nfrom ..f import g as h, i\n  from j import (k,\nprint 'two'\n"
    assert {*scan_imports(text, "p/q/r.py")} == {"a", "b.c", "p.q", "p.q.e", "p.f", "p.f.g", "p.f.i", "j", "j.k"}


def test_star_imports_and_names_on_further_lines_are_read_too() -> None:
    text = b"from flags import *\nfrom pkg import (  # here (and below)\n    a,\n    b as c,\n)\nimport d\n"
    assert {*scan_imports(text, "main.py")} == {"flags", "pkg", "pkg.a", "pkg.b", "d"}


def test_files_that_nobody_brings_together_are_no_program() -> None:
    files = {
        "one.py": TF + b"import shared\n",
        "two.py": TF + b"import shared, own\n",
        "shared.py": TF,
        "own.py": TF,
        "plain.py": b"import own\n",
    }
    project = survey(files.items())
    assert find_programs(project, "one.py") == [{"one.py", "shared.py"}]
    assert find_programs(project, "own.py") == [{"plain.py", "own.py"}, {"two.py", "shared.py", "own.py"}]
    assert [sorted(files) for files in find_programs(project, "shared.py")] == [
        ["one.py", "shared.py"],
        ["own.py", "shared.py", "two.py"],
    ]
