"""Take out Horovod's own start and end.

     import horovod.tensorflow as hvd
     import tensorflow as tf
     def main(_):
    -    hvd.init()
         train(hvd.rank())

The accelerator's communication is started at the beginning of main where ranks are asked for, and otherwise by the
first session that trains (see lifecycle_init). That is done with `--distributed`; without it the script runs on one
device, and the finding says so.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, spec="2.8 C1", kind="mandatory")
EXAMPLE_OPTIONS = {"distributed": True}


@rule.call(*horovod.names("init", "shutdown"))
def take_out(site: Site) -> None:
    if horovod.is_left(site):
        return
    statement = site.source.parents[site.node]
    what = horovod.short(site)
    if not isinstance(statement, ast.Expr):
        horovod.by_hand(
            site, "communication is started by npu_ops.initialize_system", "集合通信由 npu_ops.initialize_system 初始化"
        )
        return
    kept = horovod.kept_files(site)
    if kept:
        where = ", ".join(kept)
        site.manual(
            f"hvd.{what}() stays as long as {where} uses of Horovod what the device has nothing like: take it out "
            "together with that",
            zh=f"{where} 仍使用没有等价接口的 Horovod 功能,因此保留 hvd.{what}():请一并删除",
            risk="high",
        )
        return
    site.edit.remove_statement(statement)
    site.changed(
        f"hvd.{what}() is gone: the device's communication is started and ended by npu_ops",
        zh=f"删除 hvd.{what}():集合通信由 npu_ops 初始化与关闭",
    )
    if what == "init" and not site.options.distributed:
        site.manual(
            "this script was written for several devices: migrate it with --distributed, or it trains on one",
            zh="该脚本用于多设备训练:请加 --distributed 迁移,否则仅在单设备上训练",
            risk="high",
        )
