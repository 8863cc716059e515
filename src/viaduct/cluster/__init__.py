"""HCCL rank tables in both templates, hostfiles, the variables of each process.

    from viaduct.cluster import read
    table = read("rank_table_16p.json")
    table.environment(rank=3)["MASTER_ADDR"]

`jsontext` and `draft` parse a file, `findings` and `rules` check it, `ranktable` is the checked table. `generate` and
`device_ips` make one, `convert` changes its form, `drawing` prints it, `environment` builds the variables of its
processes. `launch` starts them, through `agent` and `rendezvous`, the only modules that import torch, and `links`,
which knows this machine's network; `scripts` writes start scripts; `plan` predicts how a job scales.
"""

from __future__ import annotations

from viaduct.cluster.findings import RULES, Finding
from viaduct.cluster.ranktable import Device, RankTable, Server, check_environment
from viaduct.cluster.ranktable import read_table as read
from viaduct.cluster.rules import examine

__all__ = ["RULES", "Device", "Finding", "RankTable", "Server", "check_environment", "examine", "read"]
