"""Rank tables made from a list of servers and their devices; tables with errors are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from viaduct.atomic_files import write_file
from viaduct.cluster.device_ips import Addresses, read_addresses
from viaduct.cluster.draft import Template
from viaduct.cluster.findings import format_count, join_first
from viaduct.cluster.ranktable import Device, RankTable, Server, render_table, summarize_errors
from viaduct.cluster.rules import DEFAULT_CARD, Card, examine
from viaduct.errors import BadData, BadValue

MAX_DEVICES = 1024  # a larger number of devices on one server is taken for a typing error


def parse_servers(text: str) -> list[str]:
    """Return the servers of `--servers`; refuse an empty or repeated name."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise BadValue(f"--servers {text!r} has an empty name.", "Write it as 10.0.0.10,10.0.0.11.")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadValue(f"--servers names {name!r} twice.", "Each server has all its devices in one entry.")
    return names


def parse_devices(text: str) -> list[int]:
    """Return the devices of `--devices`: `8` means 0 to 7; `4,5,6,7` and `4-7` mean 4 to 7."""
    numbers: list[int] = []
    for entry in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", entry)
        if match is None or int(match[2] or 0) > MAX_DEVICES or int(match[1]) > MAX_DEVICES:
            raise BadValue(
                f"--devices {text!r}: {entry.strip()!r} is neither a number up to {MAX_DEVICES} nor a range.",
                "Write 8, or 4,5,6,7, or 4-7; device 5 alone is 5-5.",
            )
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    if re.fullmatch(r"\s*[0-9]+\s*", text):
        numbers = list(range(numbers[0]))
    if not numbers or len(set(numbers)) < len(numbers):
        fault = "a device twice" if numbers else "no devices"
        raise BadValue(f"--devices {text!r} names {fault}.", "Write 8, or 4,5,6,7, or 4-7; device 5 alone is 5-5.")
    return numbers


def make_table(
    servers: Sequence[str],
    devices: Sequence[int],
    device_ips: Sequence[str],
    *,
    card: Card = DEFAULT_CARD,
    present: int | None = None,
    template: Template = 1,
) -> str:
    """Return the text of a table in which every server has the same devices; refuse one with errors.

    `present`: number of cards that each server has, if known.
    """
    addresses = read_addresses(servers, max(devices) + 1, device_ips)
    table = number_ranks(dict.fromkeys(servers, devices), addresses)
    return check_table_text(render_table(table, template), card, present)


def number_ranks(servers: Mapping[str, Sequence[int]], addresses: Addresses) -> RankTable:
    """Return a table with ranks in the order of the servers, and of the devices within each server."""
    ranks = count()
    return RankTable(
        tuple(
            Server(
                server,
                tuple(Device(number, find_address(server, number, addresses), next(ranks)) for number in numbers),
            )
            for server, numbers in servers.items()
        )
    )


def find_address(server: str, device: int, addresses: Addresses) -> str:
    """Return the address of a device; raise BadData if there is none."""
    if (server, device) not in addresses:
        servers = join_first(sorted({name for name, _ in addresses})) or "no server"
        raise BadData(
            f"--device-ips has no address for device {device} of server {server!r}.",
            f"It has {format_count(len(addresses), 'device')}, of {servers}.",
        )
    return addresses[server, device]


def check_table_text(text: str, card: Card, present: int | None = None) -> str:
    """Return the text of a table unchanged; refuse one with errors."""
    examination = examine(text, card, present)
    if examination.errors:
        fixes = dict.fromkeys(finding.fix for finding in examination.errors[:3])
        raise BadValue(f"such a table would not work: {summarize_errors(examination)}", *fixes)
    return text


def list_warnings(text: str, card: Card) -> list[str]:
    return [str(finding) for finding in examine(text, card).warnings]


def write_text_file(text: str, path: Path, force: bool) -> None:
    """Write a file atomically; refuse a folder, and an existing file unless `force`."""
    if os.path.isdir(path):
        raise BadValue(f"{path} is a folder.", "Name the file to write.")
    if os.path.exists(path) and not force:
        raise BadValue(f"{path} is there already.", "--force replaces it.")
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise BadValue(
            f"{path} cannot be written: {error.strerror}.", f"Check that you may write to {path.parent}."
        ) from error
