"""A checked rank table of HCCL: servers, their devices, their ranks.

It is read and written in HCCL's two JSON templates. Template 1 lists servers, whose devices have rank ids. Template 2
lists groups of instances (containers on servers); its ranks follow the order of the lists.

table = read_table("rank_table_16p.json")
table.size, table.master, table.environment(rank=3)
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from viaduct.cluster import environment
from viaduct.cluster.draft import SUPER_POD_VERSION, Draft, Template
from viaduct.cluster.environment import DEFAULT_JOB, DEFAULT_PORT, Target
from viaduct.cluster.findings import Finding, format_count
from viaduct.cluster.rules import DEFAULT_CARD, GROUP_NAME, Card, Examination, examine, get_server_name, is_ipv4_address
from viaduct.errors import BadData, BadValue, UnknownName
from viaduct.path_errors import refuse_special_file

MAX_SHOWN_ERRORS = 3  # in the message of `parse_table`; `viaduct ranktable check` shows all


@dataclass(frozen=True)
class Device:
    """Device of a server with its rank."""

    device_id: int  # number on its server
    device_ip: str  # of its own network card; empty in a table made from a hostfile without addresses
    rank: int


@dataclass(frozen=True)
class Server:
    """Server of a cluster."""

    server_id: str
    devices: tuple[Device, ...]  # in the order of their ranks
    host_ip: str | None = None

    @property
    def ranks(self) -> list[int]:
        return [device.rank for device in self.devices]

    @property
    def address(self) -> str:
        """Address for other servers: `server_id`; if that is a name, `host_ip` where the table has one."""
        return self.server_id if is_ipv4_address(self.server_id) else self.host_ip or self.server_id


class RankPosition(NamedTuple):
    """Position of a rank in the table."""

    server: Server
    device: Device
    node: int  # number of the server
    local: int  # number of the rank on its server


@dataclass(frozen=True)
class RankTable:
    """Rank table of a job: servers, devices, ranks."""

    servers: tuple[Server, ...]  # in the order of their smallest ranks, as torchrun numbers nodes
    template: Template = 1
    super_pod: bool = False
    path: Path | None = field(default=None, compare=False)
    warnings: tuple[Finding, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(len(server.devices) for server in self.servers)

    @property
    def master(self) -> str:
        """Address of the server that has rank 0."""
        return self.servers[0].address

    @property
    def positions(self) -> list[RankPosition]:
        """Positions of all ranks, from rank 0 on."""
        positions = [
            RankPosition(server, device, node, local)
            for node, server in enumerate(self.servers)
            for local, device in enumerate(server.devices)
        ]
        return sorted(positions, key=lambda position: position.device.rank)

    @property
    def devices(self) -> list[Device]:
        """All devices, in the order of their ranks."""
        return [position.device for position in self.positions]

    @property
    def is_interleaved(self) -> bool:
        """True if the ranks of some server are not consecutive."""
        return any(server.ranks[-1] - server.ranks[0] + 1 != len(server.ranks) for server in self.servers)

    def find_position(self, rank: int) -> RankPosition:
        """Return the position of a rank."""
        if not 0 <= rank < self.size:
            raise BadValue(f"no rank {rank} in {self.name}.", f"Its {self.size} ranks are 0 to {self.size - 1}.")
        return self.positions[rank]

    def server(self, server_id: str) -> Server:
        """Return a server by its `server_id` or address; raise UnknownName."""
        for server in self.servers:
            if server_id in (server.server_id, server.address):
                return server
        raise UnknownName(f"server in {self.name}", server_id, [server.server_id for server in self.servers])

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        return str(self.path) if self.path else "the rank table"

    def environment(
        self, rank: int, *, port: int = DEFAULT_PORT, job: str = DEFAULT_JOB, target: Target | None = None
    ) -> dict[str, str]:
        """Return the variables of the process of one rank: HCCL's and torchrun's."""
        return environment.build_rank_variables(self, rank, port=port, job=job, target=target)

    def server_environment(
        self, server_id: str, *, port: int = DEFAULT_PORT, job: str = DEFAULT_JOB, target: Target | None = None
    ) -> dict[str, str]:
        """Return the variables for torchrun on one server, which starts the ranks itself."""
        return environment.build_server_variables(self, server_id, port=port, job=job, target=target)


# Reading


def read_table(path: str | os.PathLike[str], card: Card = DEFAULT_CARD) -> RankTable:
    """Read the table of a file; raise BadData if it has errors. Its `warnings` hold the other findings.

    `card` is the model of the cards, whose limits are checked: devices of a server, their ids, the template.
    """
    return parse_table(read_bytes(Path(path)), card, Path(path))


def parse_table(source: str | bytes, card: Card = DEFAULT_CARD, path: Path | None = None) -> RankTable:
    """Parse a rank table as `read_table` does; `path` is for messages."""
    examination = examine(source, card)
    if examination.errors or examination.draft is None:
        hint = f"`viaduct ranktable check {path or 'FILE'}` shows all errors and how to correct them."
        raise BadData(f"{path or 'the rank table'} cannot be used: {summarize_errors(examination)}", hint)
    servers = build_servers(examination.draft)
    return RankTable(
        servers,
        examination.draft.template,
        examination.draft.super_pod,
        path=path,
        warnings=tuple(examination.warnings),
    )


def read_bytes(path: Path, hint: str = "`viaduct ranktable make` writes a rank table.") -> bytes:
    """Return a file's content; raise BadData if it cannot be read, with the hint if it is missing."""
    try:
        refuse_special_file(path)
        return path.read_bytes()
    except FileNotFoundError:
        raise BadData(f"there is no file {path}.", hint) from None
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from error


def summarize_errors(examination: Examination) -> str:
    """Return the number of errors and the first few of them."""
    errors = examination.errors
    shown = "\n  ".join(map(str, errors[:MAX_SHOWN_ERRORS]))
    hidden = f"\n  … and {len(errors) - MAX_SHOWN_ERRORS} more." if len(errors) > MAX_SHOWN_ERRORS else ""
    return f"{format_count(len(errors), 'violation')}.\n  {shown}{hidden}"


def build_servers(draft: Draft) -> tuple[Server, ...]:
    """Return the servers of a draft that has no errors.

    Instances of template 2 with the same `server_id` become one server.
    """
    devices: dict[str, list[Device]] = defaultdict(list)
    host_ips = {get_server_name(server): server.host_ip.text for server in draft.servers if server.host_ip}
    position = 0
    for server in draft.servers:
        for entry in server.devices:
            device_id, device_ip = (field.text if field else "" for field in (entry.device_id, entry.device_ip))
            rank = int(entry.rank_id.text) if entry.rank_id else position
            devices[get_server_name(server)].append(Device(int(device_id), device_ip, rank))
            position += 1
    return sort_servers(Server(name, tuple(entries), host_ips.get(name)) for name, entries in devices.items())


def sort_servers(servers: Iterable[Server]) -> tuple[Server, ...]:
    """Sort the devices of each server by rank, and the servers by their smallest rank."""
    ordered = (
        Server(server.server_id, tuple(sorted(server.devices, key=lambda device: device.rank)), server.host_ip)
        for server in servers
    )
    return tuple(sorted(ordered, key=lambda server: server.ranks[0]))


# Writing


def render_table(table: RankTable, template: Template = 1) -> str:
    """Return the table as JSON in either template; refuse the table of a super-pod."""
    if table.super_pod:
        raise BadValue(
            f"{table.name} is a super-pod table (version {SUPER_POD_VERSION}), which cannot be written.",
            "Its super_pod_list would be lost.",
        )
    document = build_template_1(table) if template == 1 else build_template_2(table)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def build_template_1(table: RankTable) -> dict[str, Any]:
    return {
        "server_count": str(len(table.servers)),
        "server_list": [build_server_entry(server) for server in table.servers],
        "status": "completed",
        "version": "1.0",
    }


def build_server_entry(server: Server) -> dict[str, Any]:
    """Return a server in the form of template 1."""
    host_ip = {"host_ip": server.host_ip} if server.host_ip else {}
    devices = [{**build_device_entry(device), "rank_id": str(device.rank)} for device in server.devices]
    return {"server_id": server.server_id, **host_ip, "device": devices}


def build_template_2(table: RankTable) -> dict[str, Any]:
    """Return the JSON document of template 2, with several instances for a server whose ranks are not consecutive."""
    instances: list[dict[str, Any]] = []
    for server, device, node, _ in table.positions:
        if not instances or instances[-1]["server_id"] != server.server_id:
            host_ip = {"host_ip": server.host_ip} if server.host_ip else {}
            name = f"server-{node}" if not table.is_interleaved else f"server-{node}-rank-{device.rank}"
            instances.append({"pod_name": name, "server_id": server.server_id, **host_ip, "devices": []})
        instances[-1]["devices"].append(build_device_entry(device))
    group = {
        "group_name": GROUP_NAME,
        "instance_count": str(len(instances)),
        "device_count": str(table.size),
        "instance_list": instances,
    }
    return {"status": "completed", "group_count": "1", "group_list": [group]}


def build_device_entry(device: Device) -> dict[str, str]:
    return {"device_id": str(device.device_id), "device_ip": device.device_ip}
