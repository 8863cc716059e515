"""Rules that a rank table must fulfil, by name. A finding is one violation of a rule.

Rules on the number of devices and servers, on subnets and on device ids above 7 apply only to some models of the NPU
(rules.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from viaduct.cards import NPU

Severity = Literal["error", "warning"]


class Rule(NamedTuple):
    """Rule of a rank table."""

    severity: Severity  # of a violation
    sentence: str  # what is true of a table that fulfils the rule


RULES = {
    # The file itself
    "json-syntax": Rule("error", "The file is JSON, as UTF-8."),
    "json-comments": Rule("warning", "JSON has no comments. We strip them, HCCL does not."),
    "duplicate-key": Rule("error", "An object has each key once."),
    "missing-key": Rule("error", "The keys of the template are all there."),
    "unknown-key": Rule("warning", "There are no keys besides those of the template."),
    "wrong-type": Rule("error", "Objects, lists and strings are where the template has them."),
    "empty-list": Rule("error", "No list is empty."),
    "number-as-string": Rule("error", 'All numbers are strings: "0", not 0.'),
    "template": Rule("error", "A table has `server_list` (template 1) or `group_list` (template 2), not both."),
    # The head
    "status-completed": Rule("error", '`status` is "completed".'),
    "version-known": Rule("error", '`version` is "1.0" (template 1).'),
    "super-pod": Rule("warning", 'Version "1.2" is a super-pod table: checked only where it is like version 1.0.'),
    "server-count": Rule("error", "`server_count` is the length of `server_list`."),
    "group-count": Rule("error", "`group_count` is the length of `group_list`."),
    "instance-count": Rule("error", "`instance_count` is the length of `instance_list`."),
    "device-count": Rule("error", "`device_count` is the number of all devices of the group."),
    "group-single": Rule("warning", "There is one group."),
    "group-name": Rule("warning", f"The group is called `{NPU.world_group}`."),
    # Servers
    "server-id-address": Rule("error", "A `server_id` of digits and dots is an IPv4 address."),
    "server-id-name": Rule("warning", "`server_id` is an address: only newer versions of CANN take names."),
    "server-id-length": Rule("error", "`server_id` has 1 to 63 characters."),
    "server-id-unique": Rule("error", "A server is listed once (template 1)."),
    "host-ip-address": Rule("error", "`host_ip` is an IPv4 address."),
    # Devices
    "device-id-integer": Rule("error", "`device_id` is a whole number."),
    "device-id-range": Rule("error", "`device_id` is 0 to 7."),
    "device-id-unique": Rule("error", "A device is listed once within its server."),
    "device-ip-address": Rule("error", "`device_ip` is the IPv4 address of a network card."),
    "device-ip-unique": Rule("error", "`device_ip` is unique in the table, and no server has it."),
    "device-ip-subnets": Rule("warning", "Devices i and i+4 share a subnet (/24), devices 0 to 3 are in four."),
    # Ranks
    "rank-id-integer": Rule("error", "`rank_id` is a whole number."),
    "rank-id-range": Rule("error", "`rank_id` is 0 to N-1 for N devices, without gaps."),
    "rank-id-unique": Rule("error", "Each rank is given once."),
    "ranks-consecutive": Rule("warning", "The ranks of a server follow each other; torchrun numbers them so."),
    # Topology
    "single-server-devices": Rule("error", "One server: 1, 2, 4 or 8 devices."),
    "single-server-half": Rule("error", "One server with 2 or 4 devices: all within 0-3, or all within 4-7."),
    "cluster-server-devices": Rule("error", "Several servers: 8 devices each."),
    "cluster-servers-limit": Rule("error", "At most 128 servers."),
    "cluster-power-of-two": Rule("warning", "The number of servers is a power of two."),
    # Cards
    "card-template": Rule("error", "Training cards take template 1 only."),
    "card-single": Rule("error", "Training cards: one server, one device."),
    "devices-present": Rule("error", "No server is given more devices than it has (`--present`)."),
}


class Field(NamedTuple):
    """A string of the table, and its path in the file."""

    path: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One violation of a rule."""

    rule: str
    path: str  # in the JSON document: server_list[0].device[3].device_ip; for a syntax error its line and column
    value: str | None  # value in the table; None if it is missing
    wrong: str  # the mistake, as a clause
    fix: str  # advice, as a sentence

    @property
    def severity(self) -> Severity:
        return RULES[self.rule].severity

    def as_dict(self) -> dict[str, str | None]:
        return {"severity": self.severity, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.rule}: {self.path}: {self.wrong}"


def make_finding(field: Field, rule: str, wrong: str, fix: str) -> Finding:
    return Finding(rule, field.path, field.text, wrong, fix)


def format_count(number: int, noun: str) -> str:
    """Return a count with its noun: 1 server, 2 servers."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def join_first(names: Sequence[str], limit: int = 4) -> str:
    """Return the first names, and the number of the others."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
