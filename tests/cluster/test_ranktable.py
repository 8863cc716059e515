"""The table that is right: who sits where, in either template, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.rank_tables import GUIDE_1, GUIDE_2, edit, table_1, table_2
from viaduct.cluster import read
from viaduct.cluster.ranktable import parse_table, render_table
from viaduct.errors import BadData, BadValue, UnknownName


def load(table: dict[str, Any], **changes: Any) -> Any:
    return parse_table(json.dumps(table), **changes)


def test_both_templates_of_the_guide_mean_the_same_cluster(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(GUIDE_1)
    (tmp_path / "two.json").write_text(GUIDE_2)
    first, second = read(tmp_path / "one.json"), read(str(tmp_path / "two.json"))
    assert first.servers == second.servers
    assert (first.template, second.template) == (1, 2)
    assert first.size == 2
    assert first.master == "10.0.0.10"
    assert [(device.device_id, device.device_ip, device.rank) for device in first.devices] == [
        (0, "192.168.0.2", 0),
        (1, "192.168.1.2", 1),
    ]
    assert [finding.rule for finding in first.warnings] == ["json-comments"]


def test_servers_are_in_the_order_of_their_ranks_not_of_the_file() -> None:
    table = table_1()
    table["server_list"].reverse()
    table["server_list"][1]["device"].reverse()
    read_back = load(table)
    assert [server.server_id for server in read_back.servers] == ["10.0.0.10", "10.0.1.10"]
    assert read_back.servers[0].ranks == list(range(8))
    assert read_back.master == "10.0.0.10"
    assert read_back.find_position(9).local == 1


@pytest.mark.parametrize("template", [1, 2])
@pytest.mark.parametrize("make", [table_1, table_2])
@pytest.mark.parametrize(("servers", "devices"), [(1, [5]), (1, [4, 5, 6, 7]), (4, range(8))])
def test_what_is_written_reads_as_the_same_table(make: Any, template: Any, servers: int, devices: Any) -> None:
    table = load(make(servers, devices))
    again = parse_table(render_table(table, template))
    assert again.servers == table.servers
    assert again.template == template
    assert again.warnings == ()


def test_ranks_that_change_between_servers_survive_template_2() -> None:
    changes = {"server_list[0].device[7].rank_id": "8", "server_list[1].device[0].rank_id": "7"}
    table = load(edit(table_1(), changes))
    text = render_table(table, 2)
    assert parse_table(text).servers == table.servers
    instances = json.loads(text)["group_list"][0]["instance_list"]
    assert [len(instance["devices"]) for instance in instances] == [7, 1, 1, 7]
    assert len({instance["pod_name"] for instance in instances}) == 4


def test_a_server_with_a_name_is_reached_at_its_host_address() -> None:
    changes = {"server_list[0].server_id": "node_0", "server_list[0].host_ip": "172.16.0.100"}
    table = load(edit(table_1(), changes))
    assert table.master == "172.16.0.100"
    assert table.server("node_0") is table.server("172.16.0.100")
    assert parse_table(render_table(table, 2)).master == "172.16.0.100"


def test_a_broken_table_is_refused_with_its_first_faults(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(
        json.dumps(
            edit(table_1(), {"status": "x", "version": "3", "server_count": "9", "server_list[0].server_id": ""})
        )
    )
    with pytest.raises(BadData, match="4 violations") as refusal:
        read(path)
    assert "status-completed: status: status is 'x'" in str(refusal.value)
    assert "… and 1 more." in str(refusal.value)
    assert f"viaduct ranktable check {path}" in str(refusal.value)


def test_a_file_that_does_not_exist_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no file .*none.json"):
        read(tmp_path / "none.json")
    with pytest.raises(BadData, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_a_rank_and_a_server_that_do_not_exist_are_named() -> None:
    table = load(table_1())
    with pytest.raises(BadValue, match=r"no rank 16 .*\n.*0 to 15"):
        table.find_position(16)
    with pytest.raises(BadValue, match="no rank -1"):
        table.find_position(-1)
    with pytest.raises(UnknownName, match=r"no server in the rank table called '10.0.0.1'"):
        table.server("10.0.0.1")


def test_a_super_pod_is_read_but_not_written() -> None:
    table = load(edit(table_1(), {"version": "1.2"}))
    assert table.size == 16
    with pytest.raises(BadValue, match="super-pod"):
        render_table(table)
