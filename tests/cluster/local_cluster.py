"""Rank tables and ports for tests that start servers of a job on this machine."""

from __future__ import annotations

import socket

from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import RankTable, parse_table


def make_rank_table(servers: list[str], devices: int = 1) -> RankTable:
    """Return a rank table of these servers, each with this number of devices."""
    return parse_table(make_table(servers, list(range(devices)), ["auto"], card="other"), "other")


def find_free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
