"""JSON as people write it: comments, repeated keys, bare numbers, and syntax errors with what to try."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.rank_tables import edit, table_1
from viaduct.cluster import examine
from viaduct.cluster.jsontext import BareNumber, JsonObject, NotJson, parse, strip_comments


def list_findings(source: str | bytes, **options: Any) -> set[tuple[str, str]]:
    return {(finding.rule, finding.path) for finding in examine(source, **options).findings}


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ('{"a": "b",}', "no comma before a closing bracket"),
        ("{'a': 1}", "double quotes"),
        ('{"a": "b" "c": "d"}', "comma missing"),
        ('{"a": "b"', "ends too early"),
        ("", "empty"),
        ("{“a”: 1}", "full-width"),
    ],
)
def test_a_syntax_error_comes_with_what_to_try(text: str, fix: str) -> None:
    [finding] = examine(text).findings
    assert finding.rule == "json-syntax"
    assert fix in finding.fix


def test_a_comment_is_no_comment_within_a_string_and_columns_stay() -> None:
    assert list_findings(json.dumps(edit(table_1(1), {"status": "// completed"}))) == {("status-completed", "status")}
    [finding] = examine('{ /* one\n two */ "status": // three\n x}').findings
    assert finding.path == "line 3, column 2"


def test_a_file_in_another_encoding_is_refused_with_the_byte() -> None:
    [finding] = examine("{} // 测".encode("gbk")).findings
    assert (finding.rule, finding.path) == ("json-syntax", "byte 6")
    assert "UTF-8" in finding.fix


def test_a_mark_at_the_beginning_of_the_file_is_no_fault() -> None:
    assert list_findings(json.dumps(table_1()).encode("utf-8-sig")) == set()


def test_comments_are_blanked_in_place_and_counted_by_line() -> None:
    text = '{ // one\n  "url": "http://x/*y*/", /* two\n  lines */ "a": "\\" // b" }'
    stripped = strip_comments(text)
    assert stripped.lines == (1, 2)
    assert len(stripped.text) == len(text)
    assert stripped.text.count("\n") == text.count("\n")
    assert parse(stripped.text) == {"url": "http://x/*y*/", "a": '" // b'}


def test_a_number_keeps_every_digit_and_is_no_string() -> None:
    parsed = parse('{"a": 007.50, "b": 9}'.replace("007", "7"))
    assert isinstance(parsed, JsonObject)
    assert parsed == {"a": "7.50", "b": "9"}
    assert all(isinstance(value, BareNumber) for value in parsed.values())
    assert not isinstance(parse('"9"'), BareNumber)


def test_repeated_keys_are_remembered_once_each_and_the_last_counts() -> None:
    parsed = parse('{"a": "1", "b": "2", "a": "3", "a": {"c": "4", "c": "5"}}')
    assert isinstance(parsed, JsonObject)
    assert parsed.repeated == ("a",)
    assert parsed["a"].repeated == ("c",)  # type: ignore[attr-defined]
    assert parse('{"a": "1"}').repeated == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "path"),
    [('{"a": "b",}', "line 1, column 10"), ('{\n "a": ["b" , ]}', "line 2, column 12"), ("[" * 9999, "$")],
)
def test_a_syntax_error_is_placed_where_it_is_made(text: str, path: str) -> None:
    with pytest.raises(NotJson) as caught:
        parse(text)
    assert caught.value.path == path
    assert caught.value.wrong
    assert caught.value.fix
