"""Rank tables and ports for tests that start servers of a job on this machine."""

from __future__ import annotations

import socket

from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import RankTable, parse_table


def table_of(servers: list[str], devices: int = 1) -> RankTable:
    """Rank table of these servers with so many devices each."""
    return parse_table(make_table(servers, list(range(devices)), ["auto"], card="other"), "other")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
