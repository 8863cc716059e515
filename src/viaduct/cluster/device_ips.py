"""Addresses of the network cards that each NPU has: planned, or read from hccn.conf and CSV files.

With `--device-ips auto`, device d of the s-th server, counting from 0, gets

    BASE.(4 * (s // 64) + d % 4).(2 + 2 * (s % 64) + d // 4)        netmask 255.255.255.0

Devices i and i+4 share a subnet, devices 0 to 3 are in four different ones. BASE is 192.168, or 172.31 or 10.255 if a
server's own address begins with that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from viaduct.cluster.findings import format_count
from viaduct.cluster.ranktable import read_bytes
from viaduct.cluster.rules import DEVICES_PER_SERVER, MAX_SERVERS, is_ipv4_address
from viaduct.errors import BadData, BadValue

AUTO = "auto"
BASES = ("192.168", "172.31", "10.255")
SERVERS_PER_SUBNET = 64  # their devices i and i+4 are in one subnet
HCCN_LINE = re.compile(r"\s*address_([0-9]{1,6})\s*=\s*(\S*)\s*")  # address_0=192.168.0.2
SOURCES = "Give --device-ips auto, the servers' hccn.conf files, a folder of them, or a CSV of server,device,ip."
Addresses = dict[tuple[str, int], str]  # (server, device) -> address


def read_addresses(servers: Sequence[str], devices: int, source: Sequence[str]) -> Addresses:
    """Return the addresses of devices by server and number.

    `source` is `auto`, one folder of SERVER.conf files, hccn.conf files in the order of the servers, or CSV files.
    """
    if list(source) == [AUTO]:
        return plan_addresses(servers, devices)
    if not source:
        raise BadValue("the devices' addresses are not given.", SOURCES)
    paths = [Path(name) for name in source]
    if len(paths) == 1 and os.path.isdir(paths[0]):  # unlike Path.is_dir, never raises
        return read_confs(servers, [find_conf(server, paths[0]) for server in servers])
    if any(HCCN_LINE.fullmatch(line) for path in paths for _, line in read_lines(path)):
        return read_confs(servers, paths)
    return read_csv_files(paths)


def plan_addresses(servers: Sequence[str], devices: int) -> Addresses:
    """Return the addresses of `--device-ips auto` for devices 0 to `devices` - 1 of each server."""
    if devices > DEVICES_PER_SERVER or len(servers) > MAX_SERVERS:
        raise BadValue(
            f"--device-ips auto cannot plan {format_count(len(servers), 'server')} with devices 0 to {devices - 1}.",
            f"It goes up to {MAX_SERVERS} servers of {DEVICES_PER_SERVER}; give a CSV of server,device,ip instead.",
        )
    base = next((base for base in BASES if not any(server.startswith(base + ".") for server in servers)), None)
    if base is None:
        raise BadValue(
            f"--device-ips auto finds no free network: there are servers in each of {', '.join(BASES)}.",
            "Give a CSV of server,device,ip instead.",
        )
    addresses: Addresses = {}
    for position, server in enumerate(servers):
        block, index = divmod(position, SERVERS_PER_SUBNET)
        for device in range(devices):
            addresses[server, device] = f"{base}.{4 * block + device % 4}.{2 + 2 * index + device // 4}"
    return addresses


# hccn.conf


def find_conf(server: str, folder: Path) -> Path:
    """Return the copy of a server's hccn.conf in a folder; raise BadData if it is missing."""
    path = folder / f"{server}.conf"
    if not os.path.isfile(path):
        raise BadData(f"there is no {path}.", f"Copy /etc/hccn.conf of server {server} there.")
    return path


def read_confs(servers: Sequence[str], paths: Sequence[Path]) -> Addresses:
    """Read addresses from hccn.conf files, one for each server."""
    if len(paths) != len(servers):
        raise BadValue(
            f"{format_count(len(paths), 'hccn.conf file')} for {format_count(len(servers), 'server')}.",
            "Give --device-ips once for each server, in the order of the servers, or a folder of SERVER.conf files.",
        )
    addresses: Addresses = {}
    for server, path in zip(servers, paths, strict=True):
        for number, line in read_lines(path):
            if match := HCCN_LINE.fullmatch(line):
                add_address(addresses, (server, int(match[1])), match[2], f"{path}, line {number}")
    return addresses


# CSV


def read_csv_files(paths: Sequence[Path]) -> Addresses:
    """Read addresses from tables of server, device and address."""
    addresses: Addresses = {}
    for path in paths:
        for number, line in read_lines(path):
            location = f"{path}, line {number}"
            cells = [cell.strip() for cell in line.split(",")]
            if number == 1 and cells == ["server", "device", "ip"]:
                continue
            if len(cells) != 3 or not re.fullmatch(r"[0-9]{1,6}", cells[1]):
                raise BadData(
                    f"{location}: {line.strip()!r} is neither server,device,ip nor address_0=… of an hccn.conf.",
                    "A line is such as 10.0.0.10,0,192.168.0.2.",
                )
            server, device, address = cells
            add_address(addresses, (server, int(device)), address, location)
    return addresses


def add_address(addresses: Addresses, key: tuple[str, int], address: str, location: str) -> None:
    """Add the address of a (server, device); refuse a malformed one, and a second one for the same device."""
    if not is_ipv4_address(address):
        raise BadData(f"{location}: {address!r} is not an IPv4 address.", "Write it as 192.168.0.2.")
    if key in addresses:
        server, device = key
        raise BadData(f"{location}: device {device} of server {server!r} has an address already, {addresses[key]}.")
    addresses[key] = address


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without blank lines and comments."""
    try:
        text = read_bytes(path, SOURCES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadData(f"{path} is not a text file: byte {error.start} is not UTF-8.") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line
