"""A rank table from a list of servers and their devices; what the rules refuse is not written."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from viaduct.cluster.device_ips import Addresses, addresses
from viaduct.cluster.draft import Template
from viaduct.cluster.findings import counted
from viaduct.cluster.ranktable import Device, RankTable, Server, render, summary
from viaduct.cluster.rules import DEFAULT_CARD, Card, examine
from viaduct.errors import BadData, BadValue

DEVICES_LIMIT = 1024
"""More on one server is a slip of the keyboard."""


def server_names(text: str) -> list[str]:
    """The servers of `--servers`, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise BadValue(f"--servers {text!r} has an empty name.", "Write it as 10.0.0.10,10.0.0.11.")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadValue(f"--servers names {name!r} twice.", "Each server has all its devices in one entry.")
    return names


def device_numbers(text: str) -> list[int]:
    """The devices of `--devices`: 4 are the first four, 4,5,6,7 and 4-7 are these."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
        if match is None or int(match[2] or 0) > DEVICES_LIMIT or int(match[1]) > DEVICES_LIMIT:
            raise BadValue(
                f"--devices {text!r} names no devices.", "Write 8, or 4,5,6,7, or 4-7; device 5 alone is 5-5."
            )
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    counted = list(range(numbers[0])) if re.fullmatch(r"\s*[0-9]+\s*", text) else numbers
    if not counted or len(set(counted)) < len(counted):
        fault = "a device twice" if counted else "no devices"
        raise BadValue(f"--devices {text!r} names {fault}.", "Write 8, or 4,5,6,7, or 4-7; device 5 alone is 5-5.")
    return counted


def make(
    servers: Sequence[str],
    devices: Sequence[int],
    device_ips: Sequence[str],
    *,
    card: Card = DEFAULT_CARD,
    present: int | None = None,
    template: Template = 1,
) -> str:
    """The text of a table: every server with the same devices, ranks counted through."""
    known = addresses(servers, max(devices) + 1, device_ips)
    table = number(dict.fromkeys(servers, devices), known)
    return sound(render(table, template), card, present)


def number(servers: Mapping[str, Sequence[int]], known: Addresses) -> RankTable:
    """Ranks in the order of the servers and, within each, of the devices."""
    entries = []
    rank = 0
    for server, devices in servers.items():
        found = []
        for device in devices:
            found.append(Device(device, address_of(server, device, known), rank))
            rank += 1
        entries.append(Server(server, tuple(found)))
    return RankTable(tuple(entries))


def address_of(server: str, device: int, known: Addresses) -> str:
    if (server, device) not in known:
        servers = ", ".join(sorted({name for name, _ in known})[:4]) or "no server"
        raise BadData(
            f"--device-ips has no address for device {device} of server {server!r}.",
            f"It has {counted(len(known), 'device')}, of {servers}.",
        )
    return known[server, device]


def sound(text: str, card: Card, present: int | None = None) -> str:
    """The text itself, if no rule is violated."""
    examined = examine(text, card, present)
    if examined.errors:
        fixes = dict.fromkeys(finding.fix for finding in examined.errors[:3])
        raise BadValue(f"such a table would not work: {summary(examined)}", *fixes)
    return text


def warnings_of(text: str, card: Card) -> list[str]:
    return [str(finding) for finding in examine(text, card).warnings]


def write(text: str, path: Path, force: bool) -> None:
    """The whole file or none of it, and nobody's file without being told."""
    if os.path.isdir(path):
        raise BadValue(f"{path} is a folder.", "Name the file to write.")
    if os.path.exists(path) and not force:
        raise BadValue(f"{path} is there already.", "--force replaces it.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise BadValue(
            f"{path} cannot be written: {error.strerror}.", f"Is {path.parent} a folder of yours?"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # gone if all went well, never there if the name was impossible
            temporary.unlink()
