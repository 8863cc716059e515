"""Broken rank tables, each with its name and exactly what is to be found in it: rule and JSON path."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.rank_tables import Json, edit, table_1, table_2

D = "server_list[1].device[3]"
G = "group_list[0]"


@dataclass(frozen=True)
class Broken:
    name: str
    table: Callable[[], Json]
    changes: dict[str, Any]
    finds: set[tuple[str, str]]
    options: dict[str, Any] = field(default_factory=dict)
    text: Callable[[str], str] = str
    """A last change, to the text."""

    def source(self) -> str:
        return self.text(json.dumps(edit(self.table(), self.changes), indent=1))


def one(*devices: int) -> Callable[[], Json]:
    return lambda: table_1(1, devices)


def servers(number: int) -> Callable[[], Json]:
    return lambda: table_1(number)


def slip(name: str, path: str, value: Any, rule: str, table: Callable[[], Json] = table_1) -> Broken:
    """One value is wrong, and the finding is there."""
    return Broken(name, table, {path: value}, {(rule, path)})


def replacement(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def two_groups() -> Json:
    table = table_2()
    first, second = table["group_list"][0], table_2()["group_list"][0]
    first["instance_list"].pop()
    second["instance_list"].pop(0)
    for group in (first, second):
        group.update(instance_count="1", device_count="8")
    return {**table, "group_count": "2", "group_list": [first, second]}


BROKEN = [
    # The file
    Broken(
        "comma-at-the-end", one(0), {}, {("json-syntax", "line 16, column 18")}, text=replacement('"1.0"', '"1.0",')
    ),
    Broken("comma-missing", table_1, {}, {("json-syntax", "line 3, column 2")}, text=replacement('"2",', '"2"')),
    Broken("bracket-missing", one(0), {}, {("json-syntax", "line 16, column 18")}, text=lambda text: text[:-2]),
    Broken(
        "single-quotes", table_1, {}, {("json-syntax", "line 2, column 2")}, text=lambda text: text.replace('"', "'")
    ),
    Broken("empty-file", table_1, {}, {("json-syntax", "line 1, column 1")}, text=lambda text: ""),
    Broken("full-width-comma", table_1, {}, {("json-syntax", "line 2, column 21")}, text=replacement(",", "，")),
    Broken("nested-without-end", table_1, {}, {("json-syntax", "$")}, text=lambda text: "[" * 100_000),
    Broken(
        "status-twice",
        table_1,
        {},
        {("duplicate-key", "status")},
        text=replacement('"status"', '"status": "x", "status"'),
    ),
    Broken(
        "rank-twice-in-a-device",
        table_2,
        {},
        {("duplicate-key", f"{G}.instance_list[0].devices[0].device_id")},
        text=replacement('"device_id"', '"device_id": "1", "device_id"'),
    ),
    # The shape
    Broken("a-list", table_1, {}, {("wrong-type", "$")}, text=lambda text: f"[{text}]"),
    Broken("neither-template", table_1, {"server_list": ...}, {("template", "$")}),
    Broken("both-templates", table_1, {"group_list": []}, {("template", "$")}),
    slip("no-status", "status", ..., "missing-key"),
    slip("no-version", "version", ..., "missing-key"),
    slip("no-device-ip", f"{D}.device_ip", ..., "missing-key"),
    slip("no-rank", f"{D}.rank_id", ..., "missing-key"),
    slip("no-pod-name", f"{G}.instance_list[1].pod_name", ..., "missing-key", table_2),
    Broken(
        "devices-for-device",
        one(0),
        {"server_list[0].devices": [], "server_list[0].device": ...},
        {("missing-key", "server_list[0].device"), ("unknown-key", "server_list[0].devices")},
    ),
    slip("servers-as-object", "server_list", {}, "wrong-type"),
    slip("server-as-string", "server_list[1]", "10.0.1.10", "wrong-type"),
    slip("device-as-null", D, None, "wrong-type"),
    slip("status-as-true", "status", True, "wrong-type"),
    slip("address-as-list", f"{D}.device_ip", ["192.168.103.3"], "wrong-type"),
    slip("no-servers", "server_list", [], "empty-list"),
    slip("no-devices", "server_list[0].device", [], "empty-list", one(0)),
    slip("no-instances", f"{G}.instance_list", [], "empty-list", table_2),
    slip("rank-as-number", f"{D}.rank_id", 11, "number-as-string"),
    slip("count-as-number", "server_count", 2, "number-as-string"),
    slip("version-as-number", "version", 1.0, "number-as-string"),
    slip("device-as-number", f"{G}.instance_list[0].devices[7].device_id", 7, "number-as-string", table_2),
    # The head
    slip("still-initializing", "status", "initializing", "status-completed"),
    slip("status-in-capitals", "status", "Completed", "status-completed", table_2),
    slip("version-2", "version", "2.0", "version-known"),
    slip("server-count", "server_count", "3", "server-count"),
    slip("server-count-in-words", "server_count", "two", "server-count"),
    slip("group-count", "group_count", "2", "group-count", table_2),
    slip("instance-count", f"{G}.instance_count", "1", "instance-count", table_2),
    slip("device-count", f"{G}.device_count", "8", "device-count", table_2),
    Broken(
        "server-lost",
        servers(4),
        {"server_list[3]": ...},
        {("server-count", "server_count"), ("cluster-power-of-two", "server_list")},
    ),
    # Servers
    slip("server-address-too-large", "server_list[1].server_id", "10.0.0.256", "server-id-address"),
    slip("server-address-too-short", f"{G}.instance_list[1].server_id", "10.0.1", "server-id-address", table_2),
    slip("server-name-too-long", "server_list[1].server_id", "n" * 64, "server-id-length"),
    slip("server-name-blank", "server_list[1].server_id", "", "server-id-length"),
    slip("server-twice", "server_list[1].server_id", "10.0.0.10", "server-id-unique", table_1),
    slip("host-address", "server_list[0].host_ip", "node-0", "host-ip-address"),
    # Devices
    slip("device-in-words", f"{D}.device_id", "three", "device-id-integer"),
    slip("device-with-zero", f"{D}.device_id", "03", "device-id-integer"),
    slip("device-8", f"{D}.device_id", "8", "device-id-range"),
    slip("device-with-23-digits", f"{D}.device_id", "9" * 23, "device-id-range"),
    slip("device-minus-1", f"{D}.device_id", "-1", "device-id-integer"),
    slip("device-twice", f"{D}.device_id", "2", "device-id-unique"),
    Broken(
        "device-twice-over-containers",
        lambda: table_2(2, [0]),
        {f"{G}.instance_list[1].server_id": "10.0.0.10"},
        {("device-id-unique", f"{G}.instance_list[1].devices[0].device_id")},
    ),
    slip("device-address", f"{D}.device_ip", "192.168.103.999", "device-ip-address"),
    slip("device-address-with-zeros", f"{D}.device_ip", "192.168.103.003", "device-ip-address"),
    slip("device-address-of-version-6", f"{D}.device_ip", "fe80::1", "device-ip-address"),
    slip("device-address-of-loopback", f"{D}.device_ip", "127.0.0.1", "device-ip-address"),
    slip("device-address-twice", f"{D}.device_ip", "192.168.103.1", "device-ip-unique"),
    slip("device-address-of-a-server", f"{D}.device_ip", "10.0.0.10", "device-ip-unique"),
    # Ranks
    slip("rank-in-words", f"{D}.rank_id", "last", "rank-id-integer"),
    slip("rank-negative", f"{D}.rank_id", "-1", "rank-id-integer"),
    slip("rank-16-of-16", f"{D}.rank_id", "16", "rank-id-range"),
    slip("rank-with-5000-digits", f"{D}.rank_id", "9" * 5000, "rank-id-range"),
    slip("rank-twice", f"{D}.rank_id", "0", "rank-id-unique"),
    Broken(
        "ranks-from-1",
        one(0, 1),
        {"server_list[0].device[0].rank_id": "1", "server_list[0].device[1].rank_id": "2"},
        {("rank-id-range", "server_list[0].device[1].rank_id")},
    ),
    # Topology
    slip("device-8-of-two", "server_list[0].device[1].device_id", "8", "device-id-range", one(0, 1)),
    Broken("three-devices", one(0, 1, 2), {}, {("single-server-devices", "server_list[0].device")}),
    Broken("six-devices", one(0, 1, 2, 4, 5, 6), {}, {("single-server-devices", "server_list[0].device")}),
    Broken("two-across", one(3, 4), {}, {("single-server-half", "server_list[0].device")}),
    Broken("four-across", one(2, 3, 4, 5), {}, {("single-server-half", "server_list[0].device")}),
    Broken(
        "containers-across",
        lambda: table_2(2, [0]),
        {
            f"{G}.instance_list[1].server_id": "10.0.0.10",
            f"{G}.instance_list[1].devices[0].device_id": "4",
        },
        {("single-server-half", f"{G}.instance_list[0].devices")},
    ),
    Broken(
        "four-on-each-of-two",
        lambda: table_1(2, range(4)),
        {},
        {("cluster-server-devices", f"server_list[{server}].device") for server in range(2)},
    ),
    Broken("too-many-servers", servers(129), {}, {("cluster-servers-limit", "server_list")}),
    # Cards
    Broken(
        "card-template-2", lambda: table_2(1, [0]), {}, {("card-template", "group_list")}, {"card": "atlas-300-9000"}
    ),
    Broken("card-two", one(0, 1), {}, {("card-single", "server_list")}, {"card": "atlas-300t-lite-6000"}),
    Broken("more-than-present", one(0, 1), {}, {("devices-present", "server_list[0].device[1]")}, {"present": 1}),
    # More than one slip
    Broken(
        "four-slips",
        table_1,
        {"status": "done", "server_count": 2, f"{D}.device_ip": "x", "server_list[0].device[0].rank_id": "99"},
        {
            ("status-completed", "status"),
            ("number-as-string", "server_count"),
            ("device-ip-address", f"{D}.device_ip"),
            ("rank-id-range", "server_list[0].device[0].rank_id"),
        },
    ),
]

ADVISED_AGAINST = [
    slip("a-key-too-many", f"{D}.device_name", "x", "unknown-key"),
    slip("rank-in-template-2", f"{G}.instance_list[0].devices[0].rank_id", "0", "unknown-key", table_2),
    slip("super-pod", "version", "1.2", "super-pod"),
    slip("group-called-otherwise", f"{G}.group_name", "job-1", "group-name", table_2),
    slip("server-by-name", "server_list[1].server_id", "node_1", "server-id-name"),
    Broken(
        "subnets",
        table_1,
        {f"{D}.device_ip": "192.168.50.9"},
        {("device-ip-subnets", "server_list[1].device[7].device_ip")},
    ),
    slip("one-subnet", "server_list[0].device[1].device_ip", "192.168.100.9", "device-ip-subnets", one(0, 1)),
    Broken("three-servers", servers(3), {}, {("cluster-power-of-two", "server_list")}),
    Broken(
        "ranks-mixed",
        table_1,
        {"server_list[0].device[7].rank_id": "8", "server_list[1].device[0].rank_id": "7"},
        {("ranks-consecutive", f"server_list[{server}].device") for server in range(2)},
    ),
    Broken("two-groups", two_groups, {}, {("group-single", "group_list[1].group_name")}),
    Broken("comment", table_1, {}, {("json-comments", "line 1")}, text=lambda text: text.replace("{", "{ // so", 1)),
]
