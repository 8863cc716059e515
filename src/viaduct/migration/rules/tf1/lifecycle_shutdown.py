"""Advise where communication is started but never shut down.

npu_bridge cleans up when the interpreter ends, so this is no error; a run of `npu_ops.shutdown_system()` at the end of
main gives the devices back at once.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._communication import START_CALLS, STOP_CALLS

rule = Rule(__name__, category="advice", after=("lifecycle_cycles",), runs_last=True)


@rule.call(*START_CALLS)
def advise_shutdown(site: Site) -> None:
    known = site.work.project.library_calls
    if not any(name in site.work.index.calls or name in known for name in STOP_CALLS):
        site.advise(
            "communication is started here and nowhere shut down; that happens when the interpreter ends",
            zh="此处初始化集合通信但未见 shutdown;资源将在解释器退出时清理",
        )
