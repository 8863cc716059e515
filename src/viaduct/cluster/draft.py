"""Draft of a rank table (template 1 or 2): its strings, with their paths in the file.

Reading a draft checks the structure (keys, types, empty lists); `rules.py` checks the values.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from viaduct.cluster.findings import Field, Finding
from viaduct.cluster.jsontext import BareNumber, JsonObject

Template = Literal[1, 2]
TABLE_KEYS = {1: ("server_count", "server_list", "status", "version"), 2: ("status", "group_count", "group_list")}
GROUP_KEYS = ("group_name", "instance_count", "device_count", "instance_list")
SERVER_KEYS = {1: ("server_id", "device"), 2: ("pod_name", "server_id", "devices")}
DEVICE_KEYS = {1: ("device_id", "device_ip", "rank_id"), 2: ("device_id", "device_ip")}
OPTIONAL_SERVER_KEYS = ("host_ip", "host_nic_ip")  # that some tools write
SUPER_POD_TABLE_KEYS = ("super_pod_list",)
SUPER_POD_DEVICE_KEYS = ("super_device_id", "device_port", "backup_device_ip", "backup_device_port", "host_port")
SUPER_POD_VERSION = "1.2"  # version of the table format of super-pods


@dataclass(frozen=True)
class DraftDevice:
    """Unchecked device of a table."""

    path: str
    device_id: Field | None
    device_ip: Field | None
    rank_id: Field | None


@dataclass(frozen=True)
class DraftServer:
    """Unchecked server of template 1, or instance of template 2: a container on a server."""

    path: str
    server_id: Field | None
    host_ip: Field | None
    devices: tuple[DraftDevice, ...]


class Count(NamedTuple):
    """Number that a table states and that its list must have."""

    rule: str
    field: Field
    actual: int
    noun: str  # of the counted items: "server"
    location: str  # of the counted items: "in server_list"


@dataclass
class Draft:
    """Rank table whose structure was checked and whose values were not."""

    template: Template
    status: Field | None = None
    version: Field | None = None
    counts: list[Count] = field(default_factory=list)
    group_names: list[Field] = field(default_factory=list)
    servers: list[DraftServer] = field(default_factory=list)
    is_complete: bool = True  # False if devices cannot be counted: a list is missing or empty, or an item is no object

    @property
    def super_pod(self) -> bool:
        return self.version is not None and self.version.text == SUPER_POD_VERSION

    @property
    def devices(self) -> list[DraftDevice]:
        """All devices, in the order of the file."""
        return [device for server in self.servers for device in server.devices]


def read_draft(document: object) -> tuple[Draft | None, list[Finding]]:
    """Return the draft of a table and the findings about its structure; the draft is None if no template fits."""
    reader = Reader()
    table = reader.read_object(document, "$")
    template = reader.find_template(table) if table is not None else None
    if table is None or template is None:
        return None, reader.findings
    result = reader.read_table_1(table) if template == 1 else reader.read_table_2(table)
    result.is_complete = reader.is_complete
    return result, reader.findings


class Reader:
    """Reader of the parsed JSON; each deviation from the template becomes a finding with its path.

    A method's `path` is that of the object it reads, empty for the whole document. With `super_pod` the object may have
    the further keys of a super-pod table.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.is_complete = True

    def find_template(self, table: JsonObject) -> Template | None:
        """Return the template by its list key; report a table with both or neither."""
        first, second = "server_list" in table, "group_list" in table
        if first != second:
            return 1 if first else 2
        wrong = "has both server_list and group_list" if first else "has neither server_list nor group_list"
        self.add_finding("template", "$", None, wrong, "Template 1 has server_list, template 2 has group_list.")
        return None

    def read_table_1(self, table: JsonObject) -> Draft:
        result = Draft(1, status=self.read_text(table, "status", ""), version=self.read_text(table, "version", ""))
        self.report_unknown_keys(table, "", (*TABLE_KEYS[1], *(SUPER_POD_TABLE_KEYS if result.super_pod else ())))
        count, servers = self.read_text(table, "server_count", ""), self.read_list(table, "server_list", "")
        if count and servers:
            result.counts.append(Count("server-count", count, len(servers), "server", "in server_list"))
        result.servers = [
            self.read_server(1, entries, path, result.super_pod) for path, entries in self.read_objects(servers)
        ]
        return result

    def read_table_2(self, table: JsonObject) -> Draft:
        result = Draft(2, status=self.read_text(table, "status", ""))
        self.report_unknown_keys(table, "", TABLE_KEYS[2])
        count, groups = self.read_text(table, "group_count", ""), self.read_list(table, "group_list", "")
        if count and groups:
            result.counts.append(Count("group-count", count, len(groups), "group", "in group_list"))
        for path, group in self.read_objects(groups):
            self.read_group(group, path, result)
        return result

    def read_group(self, group: JsonObject, path: str, result: Draft) -> None:
        """Add the name, the counts and the instances of a group to `result`."""
        self.report_unknown_keys(group, path, GROUP_KEYS)
        name = self.read_text(group, "group_name", path)
        result.group_names += [name] if name else []
        instance_count = self.read_text(group, "instance_count", path)
        device_count = self.read_text(group, "device_count", path)
        instances = self.read_list(group, "instance_list", path)
        servers = [self.read_server(2, entries, instance) for instance, entries in self.read_objects(instances)]
        result.servers += servers
        if instance_count and instances:
            result.counts.append(
                Count("instance-count", instance_count, len(instances), "instance", "in instance_list")
            )
        if device_count and instances and self.is_complete:
            devices = sum(len(server.devices) for server in servers)
            result.counts.append(Count("device-count", device_count, devices, "device", "in the group"))

    def read_server(self, template: Template, server: JsonObject, path: str, super_pod: bool = False) -> DraftServer:
        """Return a server of template 1, or an instance of template 2."""
        keys = SERVER_KEYS[template]
        self.report_unknown_keys(server, path, (*keys, *OPTIONAL_SERVER_KEYS))
        if template == 2:
            self.read_text(server, "pod_name", path)
        server_id = self.read_text(server, "server_id", path)
        host_ip = self.read_text(server, "host_ip", path) if "host_ip" in server else None
        entries = self.read_objects(self.read_list(server, keys[-1], path))
        devices = tuple(self.read_device(template, device, device_path, super_pod) for device_path, device in entries)
        return DraftServer(path, server_id, host_ip, devices)

    def read_device(self, template: Template, device: JsonObject, path: str, super_pod: bool) -> DraftDevice:
        self.report_unknown_keys(device, path, (*DEVICE_KEYS[template], *(SUPER_POD_DEVICE_KEYS if super_pod else ())))
        rank_id = self.read_text(device, "rank_id", path) if template == 1 else None
        device_id, device_ip = self.read_text(device, "device_id", path), self.read_text(device, "device_ip", path)
        return DraftDevice(path, device_id, device_ip, rank_id)

    # Single values

    def read_object(self, value: object, path: str) -> JsonObject | None:
        """Return a value that is an object, and report its repeated keys; report any other value and return None."""
        if isinstance(value, JsonObject):
            for key in value.repeated:
                wrong = f"{key!r} is given more than once; most readers take the last"
                shown = show_value(value[key])
                self.add_finding("duplicate-key", join_path(path, key), shown, wrong, "Remove all but one.")
            return value
        self.report_wrong_type(value, path, "an object, {…},")
        return None

    def read_objects(self, items: list[tuple[str, object]]) -> list[tuple[str, JsonObject]]:
        """Return the objects of a list with their paths, and report other items."""
        objects = [(path, self.read_object(value, path)) for path, value in items]
        self.is_complete = self.is_complete and all(entries is not None for _, entries in objects)
        return [(path, entries) for path, entries in objects if entries is not None]

    def read_list(self, holder: JsonObject, key: str, path: str) -> list[tuple[str, object]]:
        """Return the items of a list with their paths; report a missing or empty list, and a value of another type."""
        list_path = join_path(path, key)
        value = holder.get(key)
        if isinstance(value, list) and value:
            return [(f"{list_path}[{position}]", item) for position, item in enumerate(value)]
        self.is_complete = False
        if key not in holder:
            self.report_missing(list_path, key)
        elif isinstance(value, list):
            self.add_finding("empty-list", list_path, "[]", "the list is empty", "List at least one.")
        else:
            self.report_wrong_type(value, list_path, "a list, […],")
        return []

    def read_text(self, holder: JsonObject, key: str, path: str) -> Field | None:
        """Return a string, or a number as a string, with its path; report everything but a string."""
        text_path = join_path(path, key)
        value = holder.get(key)
        if key not in holder:
            self.report_missing(text_path, key)
        elif isinstance(value, BareNumber):
            wrong = f"{value} is a number; in a rank table numbers are strings"
            self.add_finding("number-as-string", text_path, str(value), wrong, f'Write "{value}", with quotes.')
        elif not isinstance(value, str):
            self.report_wrong_type(value, text_path, "a string")
        return Field(text_path, str(value)) if isinstance(value, str) else None

    def report_unknown_keys(self, holder: JsonObject, path: str, keys: tuple[str, ...]) -> None:
        for key in holder:
            if key not in keys:
                close = difflib.get_close_matches(key, [key for key in keys if key not in holder], n=1)
                fix = f"Is it {close[0]!r}?" if close else "Remove it, if nothing of yours reads it."
                value = show_value(holder[key])
                self.add_finding("unknown-key", join_path(path, key), value, "the template has no such key", fix)

    # Findings

    def add_finding(self, rule: str, path: str, value: str | None, wrong: str, fix: str) -> None:
        self.findings.append(Finding(rule, path, value, wrong, fix))

    def report_missing(self, path: str, key: str) -> None:
        fix = "Add it; `viaduct ranktable make` writes it."
        self.add_finding("missing-key", path, None, f"{key!r} is missing", fix)

    def report_wrong_type(self, value: object, path: str, expected: str) -> None:
        wrong = f"{expected} is expected, not {name_type(value)}"
        fix = "Compare with what `viaduct ranktable make` writes."
        self.add_finding("wrong-type", path, show_value(value), wrong, fix)


def join_path(path: str, key: str) -> str:
    """Return the path of a key below another path."""
    name = key if key.isidentifier() and key.isprintable() else f"[{key!r}]"
    return f"{path}.{name}" if path and path != "$" else name


def name_type(value: object) -> str:
    if isinstance(value, BareNumber):
        return "a number"
    kinds = {str: "a string", list: "a list", JsonObject: "an object", bool: "true or false", type(None): "null"}
    return kinds[type(value)]


def show_value(value: object) -> str:
    """Return a value as text for a message; lists and objects are shortened."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "[…]" if isinstance(value, list) else "{…}"
