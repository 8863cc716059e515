"""The structure of a rank table: what may be there, and what is missing or misspelt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.rank_tables import edit, table_1, table_2
from viaduct.cluster import examine
from viaduct.cluster.draft import read_draft
from viaduct.cluster.jsontext import parse


def list_findings(source: str | bytes, **options: Any) -> set[tuple[str, str]]:
    return {(finding.rule, finding.path) for finding in examine(source, **options).findings}


def test_keys_that_tools_add_are_no_fault() -> None:
    added = {"server_list[0].host_nic_ip": "reserve", "server_list[1].host_ip": "172.16.0.1"}
    assert list_findings(json.dumps(edit(table_1(), added))) == set()


def test_a_misspelt_key_is_reported_with_the_right_one() -> None:
    changes = {"server_list[0].device[0].device_Id": "0", "server_list[0].device[0].device_id": ...}
    unknown = examine(json.dumps(edit(table_1(1), changes))).warnings[0]
    assert (unknown.rule, unknown.fix) == ("unknown-key", "Is it 'device_id'?")


def nodes(value: Any, path: str = "") -> list[str]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [deeper for key, item in inside for deeper in (f"{path}/{key}", *nodes(item, f"{path}/{key}"))]


@pytest.mark.parametrize("make", [table_1, table_2])
def test_no_value_of_any_type_anywhere_makes_it_fall(make: Any) -> None:
    odd = (None, True, 0, -1.5, "", "\x1b[2J\ud800", [], {}, [[]], [None], {"a": {}}, "9" * 5000, float("nan"))
    for path in nodes(make(2, [0, 1])):
        for value in (*odd, ...):
            text = json.dumps(edit(make(2, [0, 1]), {path: value}))
            for finding in examine(text).findings:
                json.dumps(finding.as_dict()).encode()
                str(finding).encode()


@pytest.mark.parametrize("document", [[], "text", None, {}, {"server_list": [], "group_list": []}])
def test_what_is_neither_template_has_no_draft_and_one_finding(document: Any) -> None:
    draft, findings = read_draft(parse(json.dumps(document)))
    assert draft is None
    assert [finding.path for finding in findings] == ["$"]


def test_a_list_that_is_missing_or_empty_leaves_devices_uncounted() -> None:
    for change in (..., [], {}, [7]):
        table = edit(table_1(1, [0, 1]), {"server_list[0].device": change})
        draft, findings = read_draft(parse(json.dumps(table)))
        assert draft is not None
        assert not draft.is_complete
        assert len(findings) == 1
        assert findings[0].path.startswith("server_list[0].device")


def test_values_are_read_with_their_paths_and_counts_with_what_they_count() -> None:
    draft, findings = read_draft(parse(json.dumps(table_2(2, [0, 1]))))
    assert draft is not None
    assert findings == []
    assert (draft.template, draft.is_complete, len(draft.devices)) == (2, True, 4)
    last = draft.devices[-1].device_id
    assert last is not None
    assert (last.path, last.text) == ("group_list[0].instance_list[1].devices[1].device_id", "1")
    assert [(count.rule, count.field.text, count.actual) for count in draft.counts] == [
        ("group-count", "1", 1),
        ("instance-count", "2", 2),
        ("device-count", "4", 4),
    ]


def test_a_number_without_quotes_is_reported_and_used() -> None:
    draft, findings = read_draft(parse(json.dumps(edit(table_1(1, [0]), {"server_count": 1}))))
    assert draft is not None
    assert [(finding.rule, finding.fix) for finding in findings] == [("number-as-string", 'Write "1", with quotes.')]
    assert draft.counts[0].field.text == "1"
