"""Every rule: what it must leave alone, and exactly what it finds in broken tables."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cluster.broken_tables import ADVISED_AGAINST, BROKEN, Broken
from cluster.rank_tables import GUIDE_1, GUIDE_2, edit, table_1, table_2
from viaduct.cluster import examine
from viaduct.errors import UnknownName


def list_findings(source: str | bytes, **options: Any) -> set[tuple[str, str]]:
    return {(finding.rule, finding.path) for finding in examine(source, **options).findings}


@pytest.mark.parametrize("text", [GUIDE_1, GUIDE_2])
def test_the_tables_of_the_guide_are_accepted_with_a_warning_about_their_comments(text: str) -> None:
    examined = examine(text)
    assert examined.errors == []
    [finding] = examined.warnings
    assert finding.rule == "json-comments"
    assert "JSON has none" in finding.wrong


@pytest.mark.parametrize("make", [table_1, table_2])
@pytest.mark.parametrize(
    ("servers", "devices"),
    [(1, [0]), (1, [7]), (1, [0, 2]), (1, [4, 5, 6, 7]), (1, range(8)), (2, range(8)), (64, range(8)), (128, range(8))],
)
def test_nothing_is_reported_against_a_sound_table(make: Any, servers: int, devices: Any) -> None:
    assert list_findings(json.dumps(make(servers, devices))) == set()


def test_one_server_is_not_several_and_an_open_comment_is_named() -> None:
    [finding] = examine(json.dumps(edit(table_1(1, [0]), {"server_count": "2"}))).findings
    assert finding.wrong == "says '2', but there is 1 server in server_list"
    [finding] = examine('{"status": "completed", /* and so on }').findings
    assert finding.fix == "The comment that begins here is never closed: */ is missing."


def test_there_are_at_least_fifty_broken_tables_with_names_of_their_own() -> None:
    assert len({broken.name for broken in BROKEN}) == len(BROKEN) >= 50


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_table_shows_exactly_its_faults(broken: Broken) -> None:
    examined = examine(broken.source(), **broken.options)
    assert {(finding.rule, finding.path) for finding in examined.findings} == broken.finds
    assert examined.errors
    assert all(finding.wrong and finding.fix for finding in examined.findings)


@pytest.mark.parametrize("broken", ADVISED_AGAINST, ids=lambda broken: broken.name)
def test_what_is_only_advised_against_is_no_error(broken: Broken) -> None:
    examined = examine(broken.source(), **broken.options)
    assert {(finding.rule, finding.path) for finding in examined.warnings} == broken.finds
    assert examined.errors == []


def test_a_finding_names_the_value_and_the_way_out() -> None:
    text = json.dumps(edit(table_1(), {"server_list[1].device[3].rank_id": "0"}))
    [finding] = examine(text).findings
    assert finding.value == "0"
    assert finding.wrong == "rank '0' is given already, at server_list[0].device[0].rank_id"
    assert finding.fix == 'Write "11", which no device has.'


def test_other_cards_are_free_in_numbers_but_not_in_ranks() -> None:
    table = json.dumps(table_1(3, range(3)))
    assert list_findings(table, card="other") == set()
    assert {rule for rule, _ in list_findings(table)} == {"cluster-server-devices", "cluster-power-of-two"}
    assert list_findings(json.dumps(table_1(1, range(16))), card="other") == set()
    shared = edit(table_1(1, [0]), {"server_list[0].device[0].device_ip": "10.0.0.10"})
    assert list_findings(json.dumps(shared), card="other") == set()
    ranks = json.dumps(edit(table_1(3, range(3)), {"server_list[0].device[0].rank_id": "9"}))
    assert {rule for rule, _ in list_findings(ranks, card="other")} == {"rank-id-range"}


def test_a_number_that_is_too_large_is_not_called_something_else() -> None:
    for card in ("ascend-910", "other"):
        for key in ("rank_id", "device_id"):
            table = json.dumps(edit(table_1(1, [0]), {f"server_list[0].device[0].{key}": "9" * 23}))
            (finding,) = examine(table, card).errors
            assert finding.rule == f"{key.replace('_', '-')}-range"
            assert finding.wrong.startswith("9" * 23 + " is too large")


def test_one_training_card_is_accepted() -> None:
    assert list_findings(json.dumps(table_1(1, [0])), card="atlas-300-9000", present=1) == set()


def test_a_super_pod_is_checked_where_it_is_like_others() -> None:
    table = edit(table_1(2, range(16)), {"version": "1.2", "super_pod_list": []})
    for number, device in enumerate(device for server in table["server_list"] for device in server["device"]):
        device.update(super_device_id=str(number), device_ip=f"10.1.0.{number + 1}")
    assert list_findings(json.dumps(table)) == {("super-pod", "version")}
    edit(table, {"server_list[0].device[0].rank_id": "1"})
    assert ("rank-id-unique", "server_list[0].device[1].rank_id") in list_findings(json.dumps(table))


def test_an_unknown_card_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="ascend-910"):
        examine("{}", card="ascend-91O")  # type: ignore[arg-type]


def test_no_damage_to_the_text_makes_it_fall() -> None:
    source, dice = GUIDE_2.encode(), random.Random(5)
    for _ in range(500):
        start, length = dice.randrange(len(source)), dice.randrange(1, 30)
        examine(source[:start] + dice.randbytes(dice.randrange(3)) + source[start + length :])
