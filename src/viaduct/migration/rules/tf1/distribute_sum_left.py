"""Name optimizers that average although a sum was asked for.

With `--reduction sum` gradients are added up where a script computes them in sight. NPUDistributedOptimizer and its
like know averages only: an optimizer that had to be wrapped in one, or was before, averages.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

rule = Rule(
    __name__,
    spec="V2",
    kind="report",
    on=lambda options: options.distributed and options.reduction == "sum",
    after=("keras_distributed_optimizer",),
    last=True,
)


@rule.call(*optimizers.WRAPPERS)
def name_average(site: Site) -> None:
    name = site.name.rpartition(".")[2]
    site.manual(
        f"{name} averages gradients, and --reduction sum was asked for: multiply the learning rate by the number of "
        'ranks, or exchange them yourself with hccl_ops.allreduce(grad, "sum")',
        zh=f'{name} 对梯度取平均,而命令行要求求和:请将学习率乘以 rank 数,或自行使用 hccl_ops.allreduce(grad, "sum")',
        risk="high",
    )
