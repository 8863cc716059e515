"""Remove Horovod's init and shutdown.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
     def main(_):
    -    hvd.init()
         train(hvd.rank())

With `--distributed` lifecycle_init starts the NPU's communication if the script asks for ranks; otherwise the first
session that trains starts it. Without `--distributed` the script runs on one device, and the finding says so. If a file
of the program uses parts of Horovod without a counterpart, both calls stay and need manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, target_needs="communication", spec_rows=("C1", "2.8"))


@horovod.register_call(rule, "init", "shutdown")
def remove_call(site: Site) -> None:
    """Remove init or shutdown; report a call within another statement, or in a program that keeps parts of Horovod."""
    statement = site.source.parents[site.node]
    function = horovod.get_name_in_horovod(site)
    if not isinstance(statement, ast.Expr):
        horovod.request_manual_change(
            site, "communication is started by npu_ops.initialize_system", "集合通信由 npu_ops.initialize_system 初始化"
        )
        return
    keeping_files = horovod.find_files_with_horovod(site)
    if keeping_files:
        files = ", ".join(keeping_files)
        site.request_review(
            f"hvd.{function}() stays because {files} uses parts of Horovod that have no counterpart on the device: "
            "remove both together",
            zh=f"{files} 仍使用没有等价接口的 Horovod 功能,因此保留 hvd.{function}():请一并删除",
            risk="high",
        )
        return
    site.edit.remove_statement(statement)
    site.report_change(
        f"hvd.{function}() is removed: with --distributed the device's own communication is started and ended instead",
        zh=f"删除 hvd.{function}():使用 --distributed 时改为初始化与关闭设备自身的集合通信",
    )
    if function == "init" and not site.options.distributed:
        site.request_review(
            "this script was written for several devices: migrate it with --distributed, or it trains on one",
            zh="该脚本用于多设备训练:请加 --distributed 迁移,否则仅在单设备上训练",
            risk="high",
        )
