"""Rules by name, and findings about violations."""

from __future__ import annotations

import json
import re

import pytest

from cluster.broken_tables import ADVISED_AGAINST, BROKEN
from viaduct.cluster import RULES
from viaduct.cluster.findings import Field, Finding, format_count, make_finding


def test_every_rule_is_violated_by_some_table() -> None:
    assert {rule for broken in (*BROKEN, *ADVISED_AGAINST) for rule, _ in broken.finds} == set(RULES)


def test_a_finding_is_json_with_the_severity_of_its_rule() -> None:
    field = Field("server_list[0].server_id", "10.0.0.1000")
    finding = make_finding(field, "server-id-address", "'10.0.0.1000' is not an IPv4 address", "Write it as 10.0.0.10.")
    assert json.loads(json.dumps(finding.as_dict())) == {
        "severity": "error",
        "rule": "server-id-address",
        "path": "server_list[0].server_id",
        "value": "10.0.0.1000",
        "wrong": "'10.0.0.1000' is not an IPv4 address",
        "fix": "Write it as 10.0.0.10.",
    }
    assert str(finding) == "server-id-address: server_list[0].server_id: '10.0.0.1000' is not an IPv4 address"
    assert Finding("json-comments", "$", None, "", "").severity == "warning"


def test_every_rule_is_a_sentence_and_every_name_lower_case_with_hyphens() -> None:
    for name, rule in RULES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", name) or name == "template", name
        assert rule.sentence.endswith("."), name


@pytest.mark.parametrize(("number", "text"), [(0, "0 servers"), (1, "1 server"), (2, "2 servers")])
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert format_count(number, "server") == text
