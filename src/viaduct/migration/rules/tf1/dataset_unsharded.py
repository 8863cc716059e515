"""Report a dataset of which every rank would read all examples.

The rule runs with `--distributed`. It reports functions of the script that create a dataset from files, tensors or a
generator and do not shard it: they need `dataset.shard(get_rank_size(), get_rank_id())` directly after the source.
Functions with names such as "evaluate", and code at module level, are not reported.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import mark_once
from viaduct.migration.options import is_distributed
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._batchers import EVALUATION_NAMES
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, target_needs="shards", spec_rows=("D6",), category="report", when=is_distributed, runs_last=True)

SOURCES = (
    "tensorflow.data.TFRecordDataset", "tensorflow.data.TextLineDataset",
    "tensorflow.data.FixedLengthRecordDataset", "tensorflow.data.experimental.CsvDataset",
    "tensorflow.data.Dataset.list_files", "tensorflow.data.Dataset.from_tensor_slices",
    "tensorflow.data.Dataset.from_generator",
)  # fmt: skip


@rule.call(*SOURCES)
def report_unsharded(site: Site) -> None:
    functions = [parent for parent in site.source.ancestors(site.node) if isinstance(parent, FunctionNode)]
    outer = functions[-1] if functions else None
    name = outer.name.lower() if outer is not None else ""
    if outer is None or any(text in name for text in EVALUATION_NAMES) or has_shard(outer):
        return
    if mark_once(site, "source", outer):
        site.request_review(
            f"{outer.name} does not shard its dataset: unless the data is divided elsewhere, every rank sees the same "
            "examples; add .shard(get_rank_size(), get_rank_id()) after this",
            zh=f"{outer.name} 未切分数据集:若未在别处切分,各 rank 会读取相同样本;请在此之后添加 "
            ".shard(get_rank_size(), get_rank_id())",
            risk="medium",
        )


def has_shard(function: ast.AST) -> bool:
    """Return True if a function shards a dataset, or lets a distribution strategy shard it."""
    attributes = (node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute))
    return any(name in ("shard", "experimental_distribute_dataset", "auto_shard_policy") for name in attributes)
