"""Tables made from a list of servers: the plan of addresses, the files they are read from, the refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from viaduct.cluster.generate import make_table, parse_devices, parse_servers, write_text_file
from viaduct.cluster.ranktable import parse_table
from viaduct.errors import BadData, BadValue, ViaductError


def names(count: int) -> list[str]:
    return [f"10.0.{number // 200}.{1 + number % 200}" for number in range(count)]


@pytest.mark.parametrize("template", [1, 2])
def test_a_table_of_two_servers_counts_its_ranks_through(template: Any) -> None:
    text = make_table(["10.0.0.10", "10.0.0.11"], range(8), ["auto"], template=template)
    table = parse_table(text)
    assert table.template == template
    assert [server.ranks for server in table.servers] == [list(range(8)), list(range(8, 16))]
    assert table.find_position(12).device.device_ip == "192.168.0.5"


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
    assert parse_devices(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "x", "1,1", "7-4", "-1", "1,,2", "99999", "0-9999", "1.5"])
def test_devices_that_are_none_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(BadValue) as refusal:
        parse_devices(text)
    assert repr(text) in str(refusal.value)


def test_servers_are_named_once_each() -> None:
    assert parse_servers("10.0.0.1, 10.0.0.2") == ["10.0.0.1", "10.0.0.2"]
    for text, named in (("a,b,a", "'a' twice"), ("a,,b", "empty"), ("", "empty")):
        with pytest.raises(BadValue, match=named):
            parse_servers(text)


# Addresses from files


def generate_ips(source: Sequence[Path], servers: Sequence[str] = ("10.0.0.1",), devices: int = 2) -> list[str]:
    text = make_table(servers, range(devices), list(map(str, source)), card="other")
    return [device.device_ip for device in parse_table(text, "other").devices]


# Writing


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_text_file("one", path, force=False)
    with pytest.raises(BadValue, match=r"r.json is there already.\n.*--force"):
        write_text_file("two", path, force=False)
    assert path.read_text() == "one"
    write_text_file("three", path, force=True)
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
        write_text_file("new", path, force=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_is_not_taken_for_a_file(tmp_path: Path, force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, Path(".")):
        with pytest.raises(BadValue, match="is a folder"):
            write_text_file("x", path, force=force)


def test_a_name_that_is_too_long_is_no_fault_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be written: File name too long"):
        write_text_file("x", tmp_path / ("n" * 300), force=False)
    with pytest.raises(BadData, match="cannot be read: File name too long"):
        generate_ips([tmp_path / ("n" * 300)])


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ViaductError, match=r"none/r.json cannot be written"):
        write_text_file("x", tmp_path / "none" / "r.json", force=False)
