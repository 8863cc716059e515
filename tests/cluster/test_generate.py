"""Tables made from a list of servers: the plan of addresses, the files they are read from, the refusals."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from viaduct.cluster.device_ips import plan_addresses
from viaduct.cluster.generate import device_numbers, make_table, server_names, write
from viaduct.cluster.ranktable import parse_table
from viaduct.errors import BadData, BadValue, ViaductError


def names(count: int) -> list[str]:
    return [f"10.0.{number // 200}.{1 + number % 200}" for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 64, 65, 128])
def test_the_planned_addresses_keep_every_rule(count: int) -> None:
    known = plan_addresses(names(count), 8)
    assert len(set(known.values())) == 8 * count
    for server in names(count):
        nets = [IPv4Network(f"{known[server, device]}/24", strict=False) for device in range(8)]
        assert nets[:4] == nets[4:]
        assert len(set(nets)) == 4
    used = {address.packed[3] for address in map(IPv4Address, known.values())}
    assert min(used) >= 2
    assert max(used) <= 254


def test_the_plan_is_the_same_every_time_and_begins_as_the_guide_does() -> None:
    assert plan_addresses(names(3), 8) == plan_addresses(names(3), 8)
    known = plan_addresses(["10.0.0.10"], 2)
    assert list(known.values()) == ["192.168.0.2", "192.168.1.2"]


def test_the_plan_keeps_out_of_the_network_of_the_servers() -> None:
    assert plan_addresses(["192.168.0.2"], 1)["192.168.0.2", 0] == "172.31.0.2"
    assert plan_addresses(["192.168.0.2", "172.31.0.1"], 1)["192.168.0.2", 0] == "10.255.0.2"
    with pytest.raises(BadValue, match="no free network"):
        plan_addresses(["192.168.0.2", "172.31.0.1", "10.255.9.9"], 1)


@pytest.mark.parametrize("template", [1, 2])
def test_a_table_of_two_servers_counts_its_ranks_through(template: Any) -> None:
    text = make_table(["10.0.0.10", "10.0.0.11"], range(8), ["auto"], template=template)
    table = parse_table(text)
    assert table.template == template
    assert [server.ranks for server in table.servers] == [list(range(8)), list(range(8, 16))]
    assert table.seat(12).device.device_ip == "192.168.0.5"


@pytest.mark.parametrize(
    ("servers", "devices", "rule"),
    [
        (1, range(3), "single-server-devices"),
        (1, [3, 4], "single-server-half"),
        (2, range(4), "cluster-server-devices"),
        (1, [8], "device-id-range"),
    ],
)
def test_what_the_rules_refuse_is_not_made(servers: int, devices: Sequence[int], rule: str, tmp_path: Path) -> None:
    table = tmp_path / "ips.csv"
    lines = [f"{s},{d},192.168.{d}.{n + 1}" for n, s in enumerate(names(servers)) for d in devices]
    table.write_text("\n".join(lines))
    with pytest.raises(BadValue, match=rule):
        make_table(names(servers), devices, [str(table)])


def test_more_servers_than_can_be_planned_are_refused() -> None:
    with pytest.raises(BadValue, match="cannot plan 129 servers"):
        make_table(names(129), range(8), ["auto"])


def test_other_cards_may_be_any_number() -> None:
    assert parse_table(make_table(["a", "b"], range(3), ["auto"], card="other"), "other").size == 6


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", [0]), ("4", [0, 1, 2, 3]), ("4,5,6,7", [4, 5, 6, 7]), ("4-7", [4, 5, 6, 7]), ("5-5", [5]), ("0, 2", [0, 2])],
)
def test_devices_are_a_number_or_a_list(text: str, numbers: list[int]) -> None:
    assert device_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "x", "1,1", "7-4", "-1", "1,,2", "99999", "0-9999", "1.5"])
def test_devices_that_are_none_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(BadValue) as refusal:
        device_numbers(text)
    assert repr(text) in str(refusal.value)


def test_servers_are_named_once_each() -> None:
    assert server_names("10.0.0.1, 10.0.0.2") == ["10.0.0.1", "10.0.0.2"]
    for text, named in (("a,b,a", "'a' twice"), ("a,,b", "empty"), ("", "empty")):
        with pytest.raises(BadValue, match=named):
            server_names(text)


# Addresses from files

HCCN = "# written by hccn_tool\naddress_0=192.168.9.1\nnetmask_0=255.255.255.0\naddress_1 = 192.168.10.1\n"


def made(source: Sequence[Path], servers: Sequence[str] = ("10.0.0.1",), devices: int = 2) -> list[str]:
    text = make_table(servers, range(devices), list(map(str, source)), card="other")
    return [device.device_ip for device in parse_table(text, "other").devices]


def test_an_hccn_conf_gives_the_addresses_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "hccn.conf").write_text(HCCN)
    assert made([tmp_path / "hccn.conf"]) == ["192.168.9.1", "192.168.10.1"]


def test_several_hccn_confs_go_with_the_servers_in_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(HCCN)
    (tmp_path / "b").write_text(HCCN.replace(".1\n", ".2\n"))
    assert made([tmp_path / "b", tmp_path / "a"], ["10.0.0.1", "10.0.0.2"])[::2] == ["192.168.9.2", "192.168.9.1"]
    with pytest.raises(BadValue, match=r"2 hccn.conf files for 1 server"):
        made([tmp_path / "a", tmp_path / "b"])


def test_a_folder_has_a_conf_for_each_server(tmp_path: Path) -> None:
    (tmp_path / "10.0.0.1.conf").write_text(HCCN)
    assert made([tmp_path]) == ["192.168.9.1", "192.168.10.1"]
    with pytest.raises(BadData, match=r"no .*10.0.0.2.conf.\n.*Copy /etc/hccn.conf of server 10.0.0.2"):
        made([tmp_path], ["10.0.0.1", "10.0.0.2"])


@pytest.mark.parametrize("head", ["", "server,device,ip\n"])
def test_a_csv_gives_the_addresses_in_any_order(tmp_path: Path, head: str) -> None:
    (tmp_path / "ips.csv").write_text(head + "10.0.0.1,1,192.168.1.7\n\n10.0.0.1, 0, 192.168.0.7\n")
    assert made([tmp_path / "ips.csv"]) == ["192.168.0.7", "192.168.1.7"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("10.0.0.1,0,192.168.0.7\n", "no address for device 1 of server '10.0.0.1'"),
        ("10.0.0.9,0,192.168.0.7\n", r"device 0 of server '10.0.0.1'.\n.*1 device, of 10.0.0.9"),
        ("10.0.0.1;0;192.168.0.7\n", "line 1: '10.0.0.1;0;192.168.0.7' is neither"),
        ("10.0.0.1,0,192.168.0.7\n10.0.0.1,one,192.168.0.8\n", "line 2: .*one"),
        ("10.0.0.1,0,192.168.0.700\n", "line 1: '192.168.0.700' is not an IPv4 address"),
        ("10.0.0.1,0,192.168.0.7\n10.0.0.1,0,192.168.0.8\n", "line 2: device 0 .* already, 192.168.0.7"),
        ("address_0=192.168.0.7\naddress_0=192.168.0.8\n", "line 2: device 0 .* already"),
        ("address_0=\n", "line 1: '' is not an IPv4 address"),
        ("", "no address for device 0"),
    ],
)
def test_a_file_of_addresses_that_is_wrong_is_named_with_the_line(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "ips").write_text(text)
    with pytest.raises(BadData, match=named):
        made([tmp_path / "ips"])


def test_addresses_that_are_missing_altogether_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="--device-ips auto"):
        made([])
    with pytest.raises(BadData, match="no file"):
        made([tmp_path / "none"])
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(BadData, match="not UTF-8"):
        made([tmp_path / "bytes"])


# Writing


def test_a_file_that_is_there_is_replaced_only_when_told_so(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write("one", path, force=False)
    with pytest.raises(BadValue, match=r"r.json is there already.\n.*--force"):
        write("two", path, force=False)
    assert path.read_text() == "one"
    write("three", path, force=True)
    assert path.read_text() == "three"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadValue, match=r"r.json cannot be written: No space left"):
        write("new", path, force=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_is_not_taken_for_a_file(tmp_path: Path, force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, Path(".")):
        with pytest.raises(BadValue, match="is a folder"):
            write("x", path, force=force)


def test_a_name_that_is_too_long_is_no_fault_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be written: File name too long"):
        write("x", tmp_path / ("n" * 300), force=False)
    with pytest.raises(BadData, match="cannot be read: File name too long"):
        made([tmp_path / ("n" * 300)])


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ViaductError, match=r"none/r.json cannot be written"):
        write("x", tmp_path / "none" / "r.json", force=False)
