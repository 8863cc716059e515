"""Profile the card.

    -from torch.profiler import ProfilerActivity, profile
    +from torch_npu.profiler import ProfilerActivity, profile
    -with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    +with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as prof:
         pass

torch_npu has a profiler of its own with the same calls, except `record_function`, which stays torch's. Its results are
files, not tables: `key_averages()` needs manual review. torch_mlu extends torch's own profiler by the activity MLU. A
profile of the CPU alone is left as it is.

With `--to any` the helper names the activity; torch_npu brings a profiler of its own, so there torch's sees the host
alone:

     import torch
     from torch.profiler import ProfilerActivity, profile
    +from accelerator_device import accelerator
    -with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    +with profile(activities=[ProfilerActivity.CPU, accelerator.activity()]):
         step()
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _imports as imports
from viaduct.migration.rules.torch._chains import dotted_name, swap
from viaduct.migration.targets import card, helper

rule = Rule(__name__, spec="P10 6", kind="mandatory", targets=("npu", "mlu", "any"), former=("any_profiler",))

HOME, OWN = "torch.profiler", f"{NPU.module}.profiler"
MOVED = {
    *("profile", "schedule", "tensorboard_trace_handler"),
    *("ProfilerActivity", "ProfilerAction", "supported_activities"),
}
ACTIVITY = f"{HOME}.ProfilerActivity.CUDA"
ACTIVITIES = (ACTIVITY, "torch.autograd.ProfilerActivity.CUDA")


@rule.node(ast.ImportFrom, words=("profiler",))
def move_imports(site: Site) -> None:
    if site.options.to == "npu" and site.node.module == HOME and profiles_a_card(site):
        for old, new in imports.move(site, home):
            site.changed(f"{old} is imported as {new}", zh=f"{old} 改为从 {new} 导入")


def home(name: str) -> str | None:
    last = name[len(HOME) + 1 :]
    return f"{OWN}.{last}" if last in MOVED else None


@rule.call(f"{HOME}.*")
@rule.reference(f"{HOME}.*")
def rename_profiler(site: Site) -> None:
    if site.target.is_any:
        if site.name in ACTIVITIES:
            ask_for_activity(site)
        return
    node = site.node.func if isinstance(site.node, ast.Call) else site.node
    written = dotted_name(node) or ""
    fresh = respell_profiler(site, written)
    if fresh != written and swap(site, node, written, fresh):
        site.changed(f"{written} becomes {fresh}", zh=f"{written} 替换为 {fresh}")


@rule.reference("torch.autograd.ProfilerActivity.CUDA")
def rename_older(site: Site) -> None:
    if site.target.is_any:
        ask_for_activity(site)


def ask_for_activity(site: Site) -> None:
    parent = site.source.parents.get(site.node)
    if isinstance(site.node, ast.Call) or not site.editable or isinstance(parent, ast.Compare):
        return
    site.rename(f"{helper(site)}.activity()")
    site.changed("the activity is that of the available card", zh="性能分析活动取决于现有的加速卡")


@rule.call("torch.autograd.profiler.profile")
def report_switch(site: Site) -> None:
    if site.target.is_any and site.keyword("use_cuda") is not None:
        site.manual(
            "use_cuda supports CUDA only: write use_device=accelerator.name(), and None on the CPU",
            zh="use_cuda 仅支持 CUDA:请改为 use_device=accelerator.name(),CPU 上为 None",
        )


def respell_profiler(site: Site, written: str) -> str:
    """`torch.profiler.profile` as a whole; of `ProfilerActivity.CUDA` whose first name was imported, the second."""
    fresh = written.removesuffix("CUDA") + card(site.options).activity if site.name == ACTIVITY else written
    remainder = site.name[len(HOME) + 1 :]
    moves = site.options.to == "npu" and remainder.partition(".")[0] in MOVED and profiles_a_card(site)
    if not moves or written.partition(".")[0] in bound_names(site):
        return fresh
    return (
        f"{OWN}.{remainder.removesuffix('CUDA') + card(site.options).activity if site.name == ACTIVITY else remainder}"
    )


def bound_names(site: Site) -> set[str]:
    """Return what the file imports by name from torch.profiler: the import is changed instead."""
    statements = site.source.of_kind(ast.ImportFrom)
    ours = [statement for statement in statements if isinstance(statement, ast.ImportFrom) and statement.module == HOME]
    return {alias.asname or alias.name for node in ours for alias in node.names}


def profiles_a_card(site: Site) -> bool:
    """Return True if the file asks for CUDA's activity, or for no particular one, which means all."""
    index = site.work.index
    complete = (
        call for call in index.calls.get(f"{HOME}.profile", []) if not any(w.arg == "activities" for w in call.keywords)
    )
    return ACTIVITY in index.references or any(True for _ in complete)


@rule.call(f"{HOME}.profile")
def report_deprecated(site: Site) -> None:
    keyword = site.keyword("use_cuda")
    if keyword is not None and not site.target.is_any:
        title = card(site.options).title  # the activity's name as well
        site.manual(
            f"use_cuda has no effect on the {title}: say activities=[…, ProfilerActivity.{title}]",
            zh=f"use_cuda 在 {title} 上无效:请写明 activities=[…, ProfilerActivity.{title}]",
            node=keyword.value,
        )


COLUMNS = {f"{head}cuda_{tail}" for head in ("", "self_") for tail in ("time_total", "memory_usage", "time")}


@rule.node(ast.Constant, words=("cuda_time", "cuda_memory_usage"))
def column(site: Site) -> None:
    """`sort_by="cuda_time_total"`; the NPU's profiler has no tables at all."""
    if site.node.value in COLUMNS and site.options.to == "mlu":
        new = site.node.value.replace("cuda", "device")
        site.advice(
            f"{site.node.value} is CUDA's column; in current releases of torch {new} is that of any device",
            zh=f"{site.node.value} 是 CUDA 的列;在较新的 torch 中,{new} 适用于任何设备",
        )


@rule.method("key_averages")
def tables(site: Site) -> None:
    if site.options.to != "npu" or not (profiles_a_card(site) or OWN in site.source.text):
        return
    if not comes_from_autograd(site, site.node.func.value):
        site.manual(
            f"{NPU.module}'s profiler writes files and has no key_averages(): give it on_trace_ready="
            f"{OWN}.tensorboard_trace_handler(folder), and read op_statistic.csv there",
            zh=f"{NPU.module} 的性能分析结果写入文件,没有 key_averages():请设置 on_trace_ready="
            f"{OWN}.tensorboard_trace_handler(目录),并查看其中的 op_statistic.csv",
        )


def comes_from_autograd(site: Site, receiver: ast.expr) -> bool:
    """Bound last, before this line, to torch's older profiler, which has tables."""
    written, bound = ast.unparse(receiver), []
    for node in site.source.nodes:
        if isinstance(node, ast.withitem) and node.optional_vars is not None:
            bound.append((node.optional_vars, node.context_expr))
        elif isinstance(node, ast.Assign):
            bound.append((node.targets[0], node.value))
    same = [made for target, made in bound if ast.unparse(target) == written and target.lineno <= receiver.lineno]
    last = max(same, key=lambda made: made.lineno, default=None)
    made = last.func if isinstance(last, ast.Call) else last
    return made is not None and (site.qualified(made) or "").startswith("torch.autograd.profiler.")
