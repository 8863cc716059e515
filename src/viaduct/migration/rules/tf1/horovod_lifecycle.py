"""Remove Horovod's init and shutdown.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
     def main(_):
    -    hvd.init()
         train(hvd.rank())

The accelerator's communication is started at the beginning of main where ranks are asked for, and otherwise by the
first session that trains (see lifecycle_init). That is done with `--distributed`; without it the script runs on one
device, and the finding says so. As long as a file of the program uses parts of Horovod without a counterpart, both
calls stay and need manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__)


@horovod.on_call(rule, "init", "shutdown")
def remove_call(site: Site) -> None:
    """Remove init or shutdown; report it where it is no statement of its own, or where parts of Horovod stay."""
    statement = site.source.parents[site.node]
    what = horovod.short_name(site)
    if not isinstance(statement, ast.Expr):
        horovod.report_by_hand(
            site, "communication is started by npu_ops.initialize_system", "集合通信由 npu_ops.initialize_system 初始化"
        )
        return
    kept = horovod.files_that_keep_horovod(site)
    if kept:
        where = ", ".join(kept)
        site.request_review(
            f"hvd.{what}() stays because {where} uses parts of Horovod that have no counterpart on the device: remove "
            "both together",
            zh=f"{where} 仍使用没有等价接口的 Horovod 功能,因此保留 hvd.{what}():请一并删除",
            risk="high",
        )
        return
    site.edit.remove_statement(statement)
    site.report_change(
        f"hvd.{what}() is removed: with --distributed the device's own communication is started and ended instead",
        zh=f"删除 hvd.{what}():使用 --distributed 时改为初始化与关闭设备自身的集合通信",
    )
    if what == "init" and not site.options.distributed:
        site.request_review(
            "this script was written for several devices: migrate it with --distributed, or it trains on one",
            zh="该脚本用于多设备训练:请加 --distributed 迁移,否则仅在单设备上训练",
            risk="high",
        )
