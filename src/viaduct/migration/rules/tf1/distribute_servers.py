"""Name what needs parameter servers or TPUs.

ParameterServerStrategy, SyncReplicasOptimizer, cluster specifications and TPUStrategy have no counterpart that could be
written in their place: the accelerator's ranks exchange gradients among themselves.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="V1", kind="report", last=True)

HOMES = ("distribute", "distribute.experimental", "contrib.distribute")


def everywhere(name: str) -> tuple[str, ...]:
    return tuple(f"tensorflow.{home}.{name}" for home in HOMES)


@rule.call(*everywhere("ParameterServerStrategy"))
def servers(site: Site) -> None:
    site.manual(
        "parameter servers: NPURunConfig takes this strategy as distribute= with mix_compile_mode=True; ranks with "
        "NPUDistributedOptimizer are the usual way",
        zh="参数服务器:NPURunConfig 可通过 distribute= 配合 mix_compile_mode=True 使用;"
        "通常改用 NPUDistributedOptimizer",
        risk="high",
    )


@rule.call(*everywhere("TPUStrategy"))
def tpus(site: Site) -> None:
    site.manual(
        "TPUStrategy: there is no TPU; take it out and use --distributed",
        zh="TPUStrategy:没有 TPU;请去掉,并使用 --distributed",
        risk="high",
    )


@rule.call("tensorflow.train.SyncReplicasOptimizer")
def synchronous(site: Site) -> None:
    site.manual(
        "SyncReplicasOptimizer gathers gradients on parameter servers: use the inner optimizer in "
        "NPUDistributedOptimizer, and no hook of its own",
        zh="SyncReplicasOptimizer 依赖参数服务器:请用 NPUDistributedOptimizer 包装内层优化器,并去掉其 hook",
        risk="high",
    )


@rule.call("tensorflow.train.ClusterSpec", "tensorflow.train.Server", "tensorflow.distribute.Server")
def cluster(site: Site) -> None:
    site.manual(
        "a cluster of TensorFlow servers: ranks are started by the start script with a rank table instead",
        zh="TensorFlow 集群:请改由启动脚本配合 rank table 启动各 rank",
    )
