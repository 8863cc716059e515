"""The cluster as a file describes it: HCCL rank tables in both templates, hostfiles, the variables of each process.

    from viaduct.cluster import read
    table = read("rank_table_16p.json")
    table.environment(rank=3)["MASTER_ADDR"]

`jsontext` and `draft` read what was written, `findings` and `rules` say what is wrong with it, `ranktable` is the table
that is right. `generate` and `device_ips` make one, `convert` changes its form, `picture` draws it, `environment` is
what its processes are started with. `launch` starts them, through `agent` and `rollcall`, which alone import torch, and
`links`, which knows this machine's network; `scripts` writes files that do; `plan` predicts how a job scales.
"""

from __future__ import annotations

from viaduct.cluster.findings import RULES, Finding
from viaduct.cluster.ranktable import Device, RankTable, Server, check_environment, read
from viaduct.cluster.rules import examine

__all__ = ["RULES", "Device", "Finding", "RankTable", "Server", "check_environment", "examine", "read"]
