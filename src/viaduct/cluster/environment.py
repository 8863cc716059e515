"""Environment variables that follow from a rank table: those of one rank's process, or of torchrun on one server.

torchrun numbers ranks node by node, so a table in which a server's ranks are not consecutive is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from viaduct.cards import CUDA, MLU, NPU
from viaduct.cards.limits import ASCENDING_DEVICES
from viaduct.cluster.findings import format_count, join_first
from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.cluster.ranktable import RankTable, Server

Target = Literal["npu", "cuda", "mlu"]
# Variables that list the visible devices; LOCAL_RANK i is then the i-th listed device.
VISIBLE_VARIABLES = {card.name: card.visible_variable for card in (NPU, CUDA, MLU)}
DEFAULT_PORT = 29500  # torchrun's default; a rank table has no port
LAUNCHER_VARIABLE = "VIADUCT_LAUNCHER"  # set in each rank to the process id of the `viaduct launch` that started it
DEFAULT_JOB = "viaduct"


def build_rank_variables(table: RankTable, rank: int, *, port: int, job: str, target: Target | None) -> dict[str, str]:
    """Return the environment variables of one rank's process; with a `target`, also that of the visible devices."""
    position = table.find_position(rank)
    variables = {"RANK_ID": rank, "DEVICE_ID": position.device.device_id, "RANK": rank, "LOCAL_RANK": position.local}
    return {
        **build_node_variables(table, position.server, port, job, target),
        **{name: str(value) for name, value in variables.items()},
    }


def build_server_variables(
    table: RankTable, server_id: str, *, port: int, job: str, target: Target | None
) -> dict[str, str]:
    """Return the environment variables of one server, for torchrun; refuse servers with unequal numbers of devices."""
    server = table.server(server_id)
    examples: dict[int, str] = {}  # number of devices -> the first server that has as many
    for other in table.servers:
        examples.setdefault(len(other.devices), other.server_id)
    if len(examples) > 1:
        listed = join_first([f"{name} has {size}" for size, name in examples.items()])
        raise BadValue(
            f"torchrun needs the same number of devices on each server: {listed}.",
            "Start each process yourself, with the variables of `--rank N`.",
        )
    return build_node_variables(table, server, port, job, target)


def build_node_variables(
    table: RankTable, server: Server, port: int, job: str, target: Target | None
) -> dict[str, str]:
    """Return the variables that all processes of a server share."""
    refuse_unusable_table(table, port, job, target)
    shared = {
        NPU.rank_table_variable: table.path.resolve() if table.path else None,
        "JOB_ID": job,
        "RANK_SIZE": table.size,
        "MASTER_ADDR": table.master,
        "MASTER_PORT": port,
        "WORLD_SIZE": table.size,
        "NNODES": len(table.servers),
        "NODE_RANK": table.servers.index(server),
        "NPROC_PER_NODE": len(server.devices),
        **({VISIBLE_VARIABLES[target]: ",".join(str(device.device_id) for device in server.devices)} if target else {}),
    }
    return {name: str(value) for name, value in shared.items() if value is not None}


def refuse_unusable_table(table: RankTable, port: int, job: str, target: Target | None = None) -> None:
    """Refuse a bad port or job name, interleaved ranks, and for the NPU devices that are not in ascending order."""
    if table.is_interleaved:
        raise BadValue(
            f"the ranks of {table.name} change between servers; torchrun numbers them server by server.",
            f"`viaduct ranktable convert {table.path or 'FILE'} --to 1 --renumber --out NEW` numbers them so.",
        )
    for server in table.servers if target == NPU.name else ():
        devices = [device.device_id for device in server.devices]
        if devices != sorted(devices):
            listed = ",".join(map(str, devices))
            raise BadValue(
                f"in the order of ranks, the devices of server {server.server_id} of {table.name} are {listed}; "
                f"{ASCENDING_DEVICES[0]}.",
                "Give the ranks of each server in the order of its devices.",
            )
    check_port(port)
    check_job(job)


def check_port(port: int) -> None:
    """Refuse a port outside 1 to 65535."""
    if not 1 <= port <= 65535:
        raise BadValue(f"there is no port {port}.", "Ports are 1 to 65535.")


def check_job(job: str) -> None:
    """Refuse a JOB_ID with other characters than letters, digits, - and _."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", job):
        raise BadValue(f"{job!r} cannot be a JOB_ID.", "It may have letters, digits, - and _ only.")


def check_environment(table: RankTable, variables: Mapping[str, str]) -> None:
    """Refuse environment variables that contradict the table: number of ranks, rank, or device of the rank."""
    size = format_count(table.size, "device")
    for name in ("RANK_SIZE", "WORLD_SIZE"):
        if name in variables and variables[name] != str(table.size):
            raise BadValue(
                f"{name} is {variables[name]!r} in the environment, but {table.name} has {size}.",
                f"`unset {name}`, or set it to {table.size}; or name the table that you mean.",
            )
    for name in ("RANK_ID", "RANK"):
        if name in variables and variables[name] not in map(str, range(table.size)):
            raise BadValue(
                f"{name} is {variables[name]!r} in the environment, but {table.name} has ranks 0 to {table.size - 1}.",
                f"`unset {name}`, or correct it.",
            )
    rank, device = variables.get("RANK_ID"), variables.get("DEVICE_ID")
    expected = None if rank is None else table.find_position(int(rank)).device.device_id
    if rank is not None and device is not None and device != str(expected):
        raise BadValue(
            f"DEVICE_ID is {device!r} in the environment, but in {table.name} rank {rank} has device {expected}.",
            f"`viaduct ranktable env {table.path or 'FILE'} --rank {rank}` prints the variables of this rank.",
        )


def format_exports(variables: Mapping[str, str]) -> str:
    """Return `export` lines that a shell can source."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
