"""Report uses of Horovod without a counterpart in the NPU's communication.

Such uses are elastic runs, compression, object collectives, timelines, queries of the build, learning rate and metric
callbacks. They stay, with the import, and the finding names an alternative. A search for Horovod by Python's import
system (`find_spec`), which fails on the NPU's machine, is reported too.
"""

from __future__ import annotations

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import NPU_BRIDGE
from viaduct.migration.lookups import literal_text, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, target_needs="communication", spec_rows=("2.8",), category="report", runs_last=True)

NO_EQUIVALENT = ("there is no equivalent: remove it", "没有等价接口,请删除")
ALTERNATIVES = {  # name in Horovod -> advice in English and Chinese
    "alltoall": (
        "see hccl_ops.all_to_all_v, which needs counts and displacements",
        "参见 hccl_ops.all_to_all_v,需给出数量与偏移",
    ),
    "callbacks.MetricAverageCallback": (
        "average the metrics with hccl_ops.allreduce, or evaluate on one rank",
        "请用 hccl_ops.allreduce 聚合指标,或仅在单个 rank 上评估",
    ),
    "callbacks.LearningRateWarmupCallback": (
        "write the warm-up as a Keras LearningRateScheduler",
        "请用 Keras 的 LearningRateScheduler 实现 warmup",
    ),
    "callbacks.LearningRateScheduleCallback": (
        "write the schedule as a Keras LearningRateScheduler",
        "请用 Keras 的 LearningRateScheduler 实现学习率策略",
    ),
    "DistributedGradientTape": ("eager training is not supported: build a graph", "不支持 eager 训练:请改为图模式"),
    "is_initialized": (
        f"{NPU.backend} has no such function: keep track of it in the script",
        f"{NPU.backend} 无此查询接口:请自行记录",
    ),
}
MODULE_FINDERS = (
    "importlib.util.find_spec", "importlib.find_loader", "pkgutil.find_loader", "importlib.import_module",
)  # fmt: skip
HANDLED_BY_OTHER_RULES = ("init", "shutdown", "rank", "size", "local_rank", "local_size", "DistributedOptimizer")


@rule.call(*(f"{root}.*" for root in horovod.MODULES))
def report_call(site: Site) -> None:
    name = horovod.get_name_in_horovod(site)
    if name not in HANDLED_BY_OTHER_RULES and not is_reported(site) and not horovod.keeps_horovod(site):
        horovod.request_manual_change(site, *ALTERNATIVES.get(name, NO_EQUIVALENT))


@rule.reference(*horovod.MODULES, *(f"{root}.*" for root in horovod.MODULES))
def report_mention(site: Site) -> None:
    """Report a use of the module that cannot be followed, and parts of the module that are not called."""
    if site.name in horovod.MODULES:
        name, line = site.text_of(site.node), site.file.original_line(site.node)
        if line in site.file.project.horovod_escapes.get(site.file.path, ()):
            site.report_unresolved(
                f"the module {name} is passed on here and cannot be followed, so Horovod stays: replace it by hand",
                zh=f"此处直接使用了 {name} 且无法跟踪其去向,因此保留 Horovod:请手工替换",
            )
    elif not is_reported(site) and not horovod.keeps_horovod(site):
        horovod.request_manual_change(site, *ALTERNATIVES.get(horovod.get_name_in_horovod(site), NO_EQUIVALENT))


@rule.method(*HANDLED_BY_OTHER_RULES, "BroadcastGlobalVariablesHook", "allreduce", "broadcast_global_variables")
def report_passed_module(site: Site) -> None:
    """Report a call on a parameter called `hvd` in a project that uses Horovod."""
    receiver = site.node.func.value
    if plain_name(receiver) != "hvd" or site.qualified_name(receiver) is not None:
        return
    if any(horovod.is_horovod(name) for name in site.file.project.files_calling):
        site.report_unresolved(
            f"hvd.{site.name}: Horovod comes as an argument here and cannot be followed; write its "
            f"counterpart in {NPU_BRIDGE} or {NPU.backend} by hand",
            zh=f"hvd.{site.name}:此处 Horovod 以参数传入,无法跟踪;请手工改为 {NPU_BRIDGE} 或 {NPU.backend} 的对应接口",
        )


@rule.call(*MODULE_FINDERS)
def report_module_search(site: Site) -> None:
    """Report `find_spec("horovod")` in a project that uses Horovod."""
    module = literal_text(site.argument("name", 0))
    if module != "horovod" and not horovod.is_horovod(module):
        return
    if any(horovod.is_horovod(name) for name in site.file.project.files_calling):
        site.request_review(
            f"{site.text_of(site.node)} finds no Horovod on the accelerator's machine, where {NPU.backend} replaces "
            "it: let the script continue as if it had found Horovod",
            zh=f"{site.text_of(site.node)} 在 NPU 环境中找不到 Horovod,其功能由 {NPU.backend} 承担:请按其存在处理",
            risk="high",
        )


def is_reported(site: Site) -> bool:
    """Return True if another Horovod rule has reported this line for manual review."""
    line = site.file.original_line(site.node)
    return any(
        finding.status == "manual" and finding.line == line and "horovod_" in finding.rule
        for finding in site.file.findings
    )
