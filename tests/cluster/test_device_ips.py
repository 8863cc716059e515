"""Addresses of the devices' network cards: planned, or read from hccn.conf and CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from viaduct.cluster.device_ips import Addresses, add_address, plan_addresses
from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import parse_table
from viaduct.errors import BadData, BadValue


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


HCCN = "# written by hccn_tool\naddress_0=192.168.9.1\nnetmask_0=255.255.255.0\naddress_1 = 192.168.10.1\n"


def generate_ips(source: Sequence[Path], servers: Sequence[str] = ("10.0.0.1",), devices: int = 2) -> list[str]:
    text = make_table(servers, range(devices), list(map(str, source)), card="other")
    return [device.device_ip for device in parse_table(text, "other").devices]


def test_an_hccn_conf_gives_the_addresses_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "hccn.conf").write_text(HCCN)
    assert generate_ips([tmp_path / "hccn.conf"]) == ["192.168.9.1", "192.168.10.1"]


def test_several_hccn_confs_go_with_the_servers_in_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(HCCN)
    (tmp_path / "b").write_text(HCCN.replace(".1\n", ".2\n"))
    assert generate_ips([tmp_path / "b", tmp_path / "a"], ["10.0.0.1", "10.0.0.2"])[::2] == [
        "192.168.9.2",
        "192.168.9.1",
    ]
    with pytest.raises(BadValue, match=r"2 hccn.conf files for 1 server"):
        generate_ips([tmp_path / "a", tmp_path / "b"])


def test_a_folder_has_a_conf_for_each_server(tmp_path: Path) -> None:
    (tmp_path / "10.0.0.1.conf").write_text(HCCN)
    assert generate_ips([tmp_path]) == ["192.168.9.1", "192.168.10.1"]
    with pytest.raises(BadData, match=r"no .*10.0.0.2.conf.\n.*Copy /etc/hccn.conf of server 10.0.0.2"):
        generate_ips([tmp_path], ["10.0.0.1", "10.0.0.2"])


@pytest.mark.parametrize("head", ["", "server,device,ip\n"])
def test_a_csv_gives_the_addresses_in_any_order(tmp_path: Path, head: str) -> None:
    (tmp_path / "ips.csv").write_text(head + "10.0.0.1,1,192.168.1.7\n\n10.0.0.1, 0, 192.168.0.7\n")
    assert generate_ips([tmp_path / "ips.csv"]) == ["192.168.0.7", "192.168.1.7"]


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
        generate_ips([tmp_path / "ips"])


def test_addresses_that_are_missing_altogether_are_requested(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="--device-ips auto"):
        generate_ips([])
    with pytest.raises(BadData, match="no file"):
        generate_ips([tmp_path / "none"])
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(BadData, match="not UTF-8"):
        generate_ips([tmp_path / "bytes"])


def test_a_device_has_one_address_and_it_is_an_address() -> None:
    addresses: Addresses = {}
    add_address(addresses, ("a", 0), "192.168.0.2", "here")
    for wrong in ("192.168.0.2", "192.168.0.3"):
        with pytest.raises(BadData, match=r"here: device 0 of server 'a' has an address already, 192\.168\.0\.2"):
            add_address(addresses, ("a", 0), wrong, "here")
    with pytest.raises(BadData, match="is not an IPv4 address"):
        add_address(addresses, ("a", 1), "192.168.0", "here")
    assert addresses == {("a", 0): "192.168.0.2"}
