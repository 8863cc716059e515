"""Conversion between rank tables of template 1, rank tables of template 2, and MPI hostfiles.

A hostfile has a line `HOST slots=N` for each server, in the order of ranks. In a table made from it the server has
devices 0 to N-1; their addresses come from `--device-ips`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from viaduct.cluster.device_ips import read_addresses
from viaduct.cluster.draft import Template
from viaduct.cluster.generate import MAX_DEVICES, check_table_text, number_ranks
from viaduct.cluster.jsontext import NotJson, decode, strip_comments
from viaduct.cluster.ranktable import RankTable, parse_table, read_bytes, render_table, sort_servers
from viaduct.cluster.rules import DEFAULT_CARD, Card
from viaduct.errors import BadData, BadValue

HOST_LINE = re.compile(  # HOST slots=N [max_slots=M], or HOST:N
    r"(?P<host>[^\s:#=]+)(?:\s+slots=(?P<slots>[0-9]{1,4})|:(?P<short>[0-9]{1,4}))(?:\s+max_slots=[0-9]+)?"
)


def read_table_or_hostfile(
    path: Path, device_ips: Sequence[str], card: Card = DEFAULT_CARD, needs_addresses: bool = True
) -> RankTable:
    """Read a rank table or a hostfile; raise BadData or BadValue.

    `needs_addresses`: the devices of a hostfile get the addresses of `device_ips`; without it empty ones.
    """
    data = read_bytes(path)
    try:
        text = decode(data)
    except NotJson as error:
        raise BadData(f"{path} is not a text file: {error.wrong}.", error.fix) from error
    if not text.strip() or strip_comments(text).text.lstrip()[:1] in ("{", "[", '"'):
        table = parse_table(data, card, path)
        if device_ips:
            raise BadValue(
                f"--device-ips is for a hostfile; {path} is a rank table, and has its devices' addresses.",
                "Leave it out; other addresses are written into a new table by `viaduct ranktable make`.",
            )
        return table
    slots = dict(read_hosts(text, path))
    if needs_addresses:
        addresses = read_addresses(list(slots), max(slots.values()), device_ips)
    elif device_ips:
        raise BadValue("--device-ips, but a hostfile has no addresses of devices.", "Leave it out, or give --to 1.")
    else:
        addresses = {(host, device): "" for host, devices in slots.items() for device in range(devices)}
    return number_ranks({host: range(devices) for host, devices in slots.items()}, addresses)


def read_hosts(text: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the host and its number of devices (slots) of every line of a hostfile."""
    hosts: set[str] = set()
    for position, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        location = f"{path}, line {position}"
        host, slots = parse_host_line(entry, location)
        if host in hosts:
            raise BadData(f"{location}: {host!r} is listed already.", "Give a host once, with all its slots.")
        hosts.add(host)
        yield host, slots
    if not hosts:
        raise BadData(f"{path} is neither a rank table nor a hostfile: it names no host.")


def parse_host_line(entry: str, location: str) -> tuple[str, int]:
    match = HOST_LINE.fullmatch(entry)
    slots = int(match["slots"] or match["short"]) if match else 0
    if match is None or not 0 < slots <= MAX_DEVICES:
        raise BadData(
            f"{location}: {entry[:60]!r} is neither JSON nor a line of a hostfile.",
            "A hostfile has lines such as `10.0.0.10 slots=8`; a rank table begins with {.",
        )
    return match["host"], slots


def renumber(table: RankTable) -> RankTable:
    """Return the table with ranks numbered server by server, in their old order within each server."""
    ranks = count()
    servers = [
        replace(server, devices=tuple(replace(device, rank=next(ranks)) for device in server.devices))
        for server in table.servers
    ]
    return replace(table, servers=sort_servers(servers))


def render_template(table: RankTable, template: Template, card: Card = DEFAULT_CARD) -> str:
    """Render a table in a template, checked against the rules of the card."""
    return check_table_text(render_table(table, template), card)


def render_hostfile(table: RankTable) -> str:
    """Render a table as a hostfile; refuse one in which the ranks of a server are not consecutive."""
    if table.is_interleaved:
        raise BadValue(
            f"the ranks of {table.name} change between servers; a hostfile numbers them server by server.",
            "--renumber numbers them so.",
        )
    return "".join(f"{server.address} slots={len(server.devices)}\n" for server in table.servers)


def describe_lost_devices(table: RankTable) -> list[str]:
    """Return a message for each server whose devices are not 0 to N-1, which a hostfile cannot express."""
    messages = []
    for server in table.servers:
        numbers = [device.device_id for device in server.devices]
        if numbers != list(range(len(numbers))):
            listed = ",".join(map(str, numbers))
            messages.append(
                f"a hostfile has no device numbers: set the visible devices of {server.server_id} to {listed}"
            )
    return messages
