"""Rank tables, hostfiles and environment variables; launching ranks; start scripts; scaling.

    from viaduct.cluster import read
    table = read("rank_table_16p.json")
    table.environment(rank=3)["MASTER_ADDR"]

`jsontext` and `draft` parse a rank table, `findings` and `rules` check it, `ranktable` has the checked table.
`generate` and `device_ips` make a table, `convert` converts it to another template, `drawing` prints it, `environment`
builds the variables of its processes. `launch` starts ranks through `agent` and `rendezvous`, the only modules that
import torch. `links` describes this machine's network, `secret` has the secret that a job's machines share. `scripts`,
`slurm` and `project_scripts` write start scripts. `plan` predicts the time of a step, `layout` compares two layouts
of a classifier.
"""

from __future__ import annotations

from viaduct.cluster.environment import check_environment
from viaduct.cluster.findings import RULES, Finding
from viaduct.cluster.ranktable import Device, RankTable, Server
from viaduct.cluster.ranktable import read_table as read
from viaduct.cluster.rules import examine

__all__ = ["RULES", "Device", "Finding", "RankTable", "Server", "check_environment", "examine", "read"]
