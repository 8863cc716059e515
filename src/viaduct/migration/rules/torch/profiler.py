"""Profile the card instead of CUDA.

    -from torch.profiler import ProfilerActivity, profile
    +from torch_npu.profiler import ProfilerActivity, profile
    -with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    +with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as prof:
         pass

torch_npu has its own `profile`, `schedule` and `ProfilerActivity`; `record_function` stays torch's. torch_npu's
profiler writes files instead of tables, so `key_averages()` needs manual review. torch_mlu adds the activity MLU to
torch's profiler. A file that profiles the CPU only stays.

With `--to any` the helper module accelerator_device returns the activity. torch's profiler stays; on an NPU it records
the host only:

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
from viaduct.migration.lookups import dotted_name, keyword_value
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_dotted_name, report_uneditable
from viaduct.migration.rules.torch._imports import move_names
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__, target_needs="profiling", spec_rows=("P10", "6"), targets=ALL_TARGETS, former_names=("any_profiler",)
)

TORCH_PROFILER, NPU_PROFILER = "torch.profiler", f"{NPU.plugin}.profiler"
# Names of torch.profiler that torch_npu.profiler has too.
IN_PLUGIN = {
    "profile", "schedule", "tensorboard_trace_handler", "ProfilerActivity", "ProfilerAction", "supported_activities",
}  # fmt: skip
ACTIVITY = f"{TORCH_PROFILER}.ProfilerActivity.CUDA"
COLUMNS = {f"{prefix}cuda_{name}" for prefix in ("", "self_") for name in ("time_total", "memory_usage", "time")}
"""Columns of the tables of torch's profiler."""


@rule.node(ast.ImportFrom, only_if_file_contains=("profiler",))
def move_imports(site: Site) -> None:
    """On the NPU import names from torch_npu.profiler instead of torch.profiler, if the file profiles CUDA."""
    if site.options.to == "npu" and site.node.module == TORCH_PROFILER and profiles_cuda(site):
        move_names(site, find_name_in_plugin)


def find_name_in_plugin(name: str) -> str | None:
    """Return the name in torch_npu.profiler for one of torch.profiler, or None."""
    member = name.removeprefix(f"{TORCH_PROFILER}.")
    return f"{NPU_PROFILER}.{member}" if member in IN_PLUGIN else None


@rule.use(f"{TORCH_PROFILER}.*")
def rename_profiler(site: Site) -> None:
    """Replace the activity CUDA, and for the NPU also the module in names such as `torch.profiler.profile`."""
    if site.target.is_any_card:
        return
    node = site.name_node
    old = dotted_name(node)
    new = adapt_profiler_name(site, old)
    if new == old:
        return
    if replace_dotted_name(site, node, old, new):
        site.report_change(f"{old} becomes {new}", zh=f"{old} 替换为 {new}")
    else:
        report_uneditable(site, old, new)


@rule.reference(ACTIVITY, "torch.autograd.ProfilerActivity.CUDA")
def take_activity_from_helper(site: Site) -> None:
    """With `--to any` replace the activity CUDA by `accelerator.activity()`; an activity in a comparison stays."""
    parent = site.source.parents.get(site.node)
    if not site.target.is_any_card or not site.is_editable or isinstance(parent, ast.Compare):
        return
    site.rename(f"{import_helper(site)}.activity()")
    site.report_change("the activity is that of the available card", zh="性能分析活动取决于现有的加速卡")


@rule.call("torch.autograd.profiler.profile")
def report_older_switch(site: Site) -> None:
    """Report use_cuda of torch's older profiler with `--to any`."""
    if site.target.is_any_card and site.keyword("use_cuda") is not None:
        site.request_review(
            "use_cuda supports CUDA only: write use_device=accelerator.name(), and None on the CPU",
            zh="use_cuda 仅支持 CUDA:请改为 use_device=accelerator.name(),CPU 上为 None",
        )


def adapt_profiler_name(site: Site, name: str) -> str:
    """Return a name of torch.profiler with the card's activity instead of CUDA, and torch_npu's module if needed.

    A name that the file imports from torch.profiler keeps its form, since the import is edited.
    """
    member = site.name.removeprefix(f"{TORCH_PROFILER}.")
    if site.name == ACTIVITY:
        activity = site.target.card.profiler_activity
        name, member = name.removesuffix("CUDA") + activity, member.removesuffix("CUDA") + activity
    is_in_plugin = site.options.to == "npu" and member.partition(".")[0] in IN_PLUGIN and profiles_cuda(site)
    is_imported_by_name = name.partition(".")[0] in find_names_from_profiler(site)
    return f"{NPU_PROFILER}.{member}" if is_in_plugin and not is_imported_by_name else name


def find_names_from_profiler(site: Site) -> set[str]:
    statements = (
        statement for statement in site.source.nodes_of_type(ast.ImportFrom) if statement.module == TORCH_PROFILER
    )
    return {alias.asname or alias.name for statement in statements for alias in statement.names}


def profiles_cuda(site: Site) -> bool:
    """Return True if the file profiles CUDA's activity, or all activities by naming none."""
    calls = site.file.index.calls.get(f"{TORCH_PROFILER}.profile", [])
    profiles_all = any(keyword_value(call, "activities") is None for call in calls)
    return profiles_all or ACTIVITY in site.file.index.references


@rule.call(f"{TORCH_PROFILER}.profile")
def report_switch(site: Site) -> None:
    """Report use_cuda, which has no effect on the cards."""
    keyword = site.keyword("use_cuda")
    if keyword is not None and not site.target.is_any_card:
        title = site.target.card.title  # also the activity's name
        site.request_review(
            f"use_cuda has no effect on the {title}: write activities=[…, ProfilerActivity.{title}]",
            zh=f"use_cuda 在 {title} 上无效:请写明 activities=[…, ProfilerActivity.{title}]",
            node=keyword.value,
        )


@rule.node(ast.Constant, only_if_file_contains=("cuda_time", "cuda_memory_usage"))
def advise_column(site: Site) -> None:
    """Advise on `sort_by="cuda_time_total"` on the MLU; the NPU's profiler has no tables."""
    if site.node.value in COLUMNS and site.options.to == "mlu":
        new = site.node.value.replace("cuda", "device")
        site.advise(
            f"{site.node.value} is CUDA's column; in current releases of torch {new} is the column of any device",
            zh=f"{site.node.value} 是 CUDA 的列;在较新的 torch 中,{new} 适用于任何设备",
        )


@rule.method("key_averages")
def report_tables(site: Site) -> None:
    """Report key_averages() on the NPU, whose profiler writes files instead."""
    if site.options.to != "npu" or not (profiles_cuda(site) or NPU_PROFILER in site.source.text):
        return
    if not is_older_profiler(site, site.node.func.value):
        site.request_review(
            f"{NPU.plugin}'s profiler writes files and has no key_averages(): give it on_trace_ready="
            f"{NPU_PROFILER}.tensorboard_trace_handler(folder), and read op_statistic.csv there",
            zh=f"{NPU.plugin} 的性能分析结果写入文件,没有 key_averages():请设置 on_trace_ready="
            f"{NPU_PROFILER}.tensorboard_trace_handler(目录),并查看其中的 op_statistic.csv",
        )


def is_older_profiler(site: Site, receiver: ast.expr) -> bool:
    """Return True if the last value assigned to the receiver before this line is torch's older profiler."""
    assigned = [(node.targets[0], node.value) for node in site.source.nodes_of_type(ast.Assign)]
    items = site.source.nodes_of_type(ast.withitem)
    assigned += [(item.optional_vars, item.context_expr) for item in items if item.optional_vars is not None]
    before = [(target, value) for target, value in assigned if target.lineno <= receiver.lineno]
    values = [value for target, value in before if ast.unparse(target) == ast.unparse(receiver)]
    last = max(values, key=lambda value: value.lineno, default=None)
    function = last.func if isinstance(last, ast.Call) else last
    return function is not None and (site.qualified_name(function) or "").startswith("torch.autograd.profiler.")
