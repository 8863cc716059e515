"""Report functions of TensorFlow that Ascend's table lists as unsupported, under analysis or without effect.

Such functions are TPU functions, random number generators, critical sections, NCCL, TensorRT and tests for GPUs. The
finding gives the table's advice (migration/support_table.py). Functions that another rule handles are not reported, nor
are those that the table does not have: they may work or not.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._device_counts import counts_devices
from viaduct.migration.support_table import find_symbol, list_names_without_rule

rule = Rule(
    __name__,
    target_needs="tensorflow_functions",
    spec_rows=("8",),
    category="report",
    runs_last=True,
)

SUPPORT_ZH = {
    "unsupported": "不支持",
    "under analysis": "分析中",
    "no effect": "不生效",
    "after migration": "迁移后支持",
}


@rule.use(*list_names_without_rule())
def report_symbol(site: Site) -> None:
    symbol = find_symbol(site.name)
    if symbol is None:
        return
    name = site.text_of(site.name_node)
    if counts_devices(site) and symbol.support == "no effect":
        site.request_review(
            f"{name} finds no GPU, and does not list the accelerator: code that runs once for each GPU would not run; "
            "one process drives one device, so count 1",
            zh=f"{name} 查询不到 GPU,也不会列出昇腾设备:按设备数执行的代码将不会执行;每个进程对应一个设备,请按 1 计",
            risk="high",
        )
        return
    report = site.advise if symbol.support == "no effect" else site.request_review
    report(
        f"{name} ({symbol.support}): {symbol.advice}",
        zh=f"{name}({SUPPORT_ZH[symbol.support]}):{symbol.advice_zh}",
        risk=symbol.risk,
    )
