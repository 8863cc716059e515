"""Advise on communication that is started but never shut down.

npu_bridge, Ascend's package for TensorFlow, shuts it down when the interpreter ends; a run of
`npu_ops.shutdown_system()` at the end of main releases the devices earlier.
"""

from __future__ import annotations

from viaduct.migration.lookups import is_called_in_project
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._communication import START_CALLS, STOP_CALLS

rule = Rule(__name__, rows=("C6",), category="advice", after=("lifecycle_cycles",), runs_last=True)


@rule.call(*START_CALLS)
def advise_shutdown(site: Site) -> None:
    if not is_called_in_project(site, STOP_CALLS):
        site.advise(
            "communication is started here and never shut down by the script; it ends when the interpreter exits",
            zh="此处初始化集合通信但未见 shutdown;资源将在解释器退出时清理",
        )
