"""Conversion between formats: what is kept, what a hostfile cannot hold, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.rank_tables import GUIDE_1, GUIDE_2, edit, table_1
from viaduct.cluster.convert import (
    describe_lost_devices,
    read_table_or_hostfile,
    render_hostfile,
    render_template,
    renumber,
)
from viaduct.cluster.ranktable import parse_table
from viaduct.errors import BadData, BadValue

MIXED = {"server_list[0].device[7].rank_id": "8", "server_list[1].device[0].rank_id": "7"}


def hostfile(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text)
    return path


def test_one_template_becomes_the_other_and_back() -> None:
    first, second = parse_table(GUIDE_1), parse_table(GUIDE_2)
    assert parse_table(render_template(first, 2)).servers == second.servers
    assert parse_table(render_template(second, 1)).servers == first.servers
    assert render_template(parse_table(render_template(first, 2)), 1) == render_template(first, 1)
    assert "//" not in render_template(second, 2)


def test_a_table_becomes_a_hostfile_in_the_order_of_ranks() -> None:
    table = table_1()
    table["server_list"].reverse()
    assert render_hostfile(parse_table(json.dumps(table))) == "10.0.0.10 slots=8\n10.0.1.10 slots=8\n"


def test_a_hostfile_becomes_a_table_with_addresses_given(tmp_path: Path) -> None:
    text = "# our cluster\n10.0.0.10 slots=8\n\n10.0.0.11:8   # the new one\n"
    table = read_table_or_hostfile(hostfile(tmp_path, text), ["auto"])
    assert [server.server_id for server in table.servers] == ["10.0.0.10", "10.0.0.11"]
    assert table.size == 16
    assert render_hostfile(parse_table(render_template(table, 1))) == "10.0.0.10 slots=8\n10.0.0.11 slots=8\n"


def test_a_hostfile_alone_has_no_addresses_for_a_table_but_is_a_hostfile(tmp_path: Path) -> None:
    path = hostfile(tmp_path, "10.0.0.10 slots=8 max_slots=8\n")
    with pytest.raises(BadValue, match="the devices' addresses are not given"):
        read_table_or_hostfile(path, [])
    assert render_hostfile(read_table_or_hostfile(path, [], needs_addresses=False)) == "10.0.0.10 slots=8\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("10.0.0.10\n", "line 1: '10.0.0.10' is neither JSON nor a line of a hostfile"),
        ("a slots=8\na slots=8\n", "line 2: 'a' is listed already"),
        ("a slots=0\n", "line 1: 'a slots=0'"),
        ("a slots=9999\n", "line 1"),
        ("a slots=x\n", "line 1"),
        ("# nothing\n", "names no host"),
        ("", "json-syntax"),
        ("{", "json-syntax"),
    ],
)
def test_a_file_that_is_neither_is_named_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadData, match=named):
        read_table_or_hostfile(hostfile(tmp_path, text), ["auto"])


def test_a_hostfile_of_slots_that_hccl_does_not_take_is_refused(tmp_path: Path) -> None:
    table = read_table_or_hostfile(hostfile(tmp_path, "a slots=4\nb slots=2\n"), ["auto"])
    with pytest.raises(BadValue, match="cluster-server-devices"):
        render_template(table, 1)
    assert parse_table(render_template(table, 1, "other"), "other").size == 6


def test_ranks_are_renumbered_server_by_server() -> None:
    mixed = parse_table(json.dumps(edit(table_1(), MIXED)))
    with pytest.raises(BadValue, match="--renumber"):
        render_hostfile(mixed)
    straight = renumber(mixed)
    assert [server.ranks for server in straight.servers] == [list(range(8)), list(range(8, 16))]
    assert [device.device_id for device in straight.devices] == [*range(8), *range(8)]
    assert renumber(straight) == straight


def test_device_numbers_that_a_hostfile_loses_are_reported() -> None:
    assert describe_lost_devices(parse_table(json.dumps(table_1(1, range(8))))) == []
    [sentence] = describe_lost_devices(parse_table(json.dumps(table_1(1, [4, 5]))))
    assert "of 10.0.0.10 to 4,5" in sentence


def test_training_cards_are_not_given_template_2() -> None:
    table = parse_table(json.dumps(table_1(1, [0])))
    with pytest.raises(BadValue, match="card-template"):
        render_template(table, 2, "atlas-300-9000")
