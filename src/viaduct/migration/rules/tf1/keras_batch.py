"""Advise on a `fit` whose last batch may be shorter.

A graph is compiled for fixed shapes. `fit(x, y, batch_size=B)` on arrays ends each epoch with a shorter batch unless B
divides the number of examples: choose such a B, or pass steps_per_epoch or a dataset with drop_remainder=True.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _keras

rule = Rule(__name__, spec_rows=("K8",), category="advice", runs_last=True)


@rule.method("fit")
def advise_last_batch(site: Site) -> None:
    """Advise on a model's fit on arrays without steps_per_epoch."""
    if not _keras.is_model(site, site.node.func.value) or site.keyword("steps_per_epoch"):
        return
    data, labels = site.argument("x", 0), site.argument("y", 1)
    if data is None or labels is None or site.values.kind(data) == "dataset":
        return
    site.advise(
        "the last batch of an epoch may be shorter, which the compiled graph does not accept: choose a batch_size that "
        "divides the number of examples, or pass steps_per_epoch",
        zh="每轮最后一个 batch 可能不足,静态 shape 的图无法执行:请使 batch_size 整除样本数,或指定 steps_per_epoch",
        risk="medium",
    )
