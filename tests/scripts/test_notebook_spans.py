"""The sources of code cells are found in a notebook's JSON, however that was written."""

from __future__ import annotations

import json
from json import JSONDecodeError

import pytest

from viaduct.scripts.notebook_spans import Span, find_sources, rewrite_source

CODE = {"cell_type": "code", "source": ["a = 1\n", "b = 2"], "metadata": {"source": ["x"], "cells": [{}]}}


def write(*cells: object, **layout: object) -> str:
    return json.dumps({"metadata": {"cells": []}, "cells": cells}, **layout)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cell",
    [
        {**CODE, "cell_type": "markdown"},
        {**CODE, "language": "R"},
        {**CODE, "source": ["a", 1]},
        {**CODE, "source": None},
        {"cell_type": "code"},
    ],
)
def test_a_cell_without_python_code_has_no_source(cell: object) -> None:
    assert find_sources(write(cell)) == []


@pytest.mark.parametrize("text", ["[]", '"cells"', "{}", '{"cells": {}}', '{"cells": []}'])
def test_what_has_no_cells_has_no_sources(text: str) -> None:
    assert find_sources(text) == []


def test_a_list_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(JSONDecodeError):
        find_sources('{"cells": [1 2]}')


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}, {"sort_keys": True}])
def test_a_span_holds_exactly_the_json_of_the_source(layout: dict[str, object]) -> None:
    text = write({**CODE, "cell_type": "markdown"}, CODE, {**CODE, "source": "c"}, **layout)
    first, second = find_sources(text)
    assert (first.cell, first.source) == (1, "a = 1\nb = 2")
    assert json.loads(text[first.start : first.end]) == CODE["source"]
    assert (second.cell, text[second.start : second.end]) == (2, '"c"')


def rewrite(written: str, source: str) -> str:
    return rewrite_source(written, Span(0, 0, len(written), ""), source)


@pytest.mark.parametrize(
    ("written", "source", "expected"),
    [
        ('"a"', "b\n", r'"b\n"'),
        ('["a\\n", "b"]', "a\nc", r'["a\n", "c"]'),
        ('[\n  "a\\n",\n  "b"\n]', "a\nx\nb", '[\n  "a\\n",\n  "x\\n",\n  "b"\n]'),
        ('["a"]', "a\nb", r'["a\n","b"]'),
        ('[\n "a"\n]', "x\ny", '[\n "x\\n",\n "y"\n]'),
        ("[]", "a\nb", r'["a\n", "b"]'),
        (r'["\u0061\n", "b"]', "a\né", '["\\u0061\\n", "\\u00e9"]'),
        ('["é\\n", "b"]', "é\nü", r'["é\n", "ü"]'),
        (r'["a\u2028b"]', "a\u2028b", r'["a\u2028b"]'),
    ],
)
def test_a_new_source_is_written_in_the_format_of_the_old_one(written: str, source: str, expected: str) -> None:
    assert rewrite(written, source) == expected
    assert "".join(json.loads(expected)) == source
