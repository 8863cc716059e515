"""Report DataParallel, which the NPU and the MLU do not support, or remove it.

With `--data-parallel unwrap`:

     import torch
     model = torch.nn.Linear(2, 2)
    -model = torch.nn.DataParallel(model)
     x = torch.zeros(1, 2)
    -torch.save(model.module.state_dict(), "model.pt")
    +torch.save(model.state_dict(), "model.pt")

With DataParallel one process drives all cards; torch_npu and torch_mlu do not support that. On one card the model needs
no wrapper. For several cards `--data-parallel ddp` replaces it by DistributedDataParallel if the script allows that.
With `--to any` it stays, so that a run on CUDA is unchanged, and is reported.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import mark_once, method_name, plain_name
from viaduct.migration.rule import ALL_MODES, ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch import _wrapped_models as wrapped_models

rule = Rule(
    __name__,
    target_needs="data_parallel",
    spec_rows=("P14",),
    targets=ALL_TARGETS,
    category_for_any="report",
    when=lambda options: options.to == "any" or options.data_parallel != "ddp",
    modes=ALL_MODES,
    former_names=("any_data_parallel",),
    after=("device_string",),
)
NO_MODEL_NAME = re.compile(r"opt|sched|scaler", re.IGNORECASE)  # of optimizers and others with load_state_dict
PREFIX_LENGTH = re.compile(r"7|len\('module\.'\)")  # length of "module."


@rule.call(*wrapped_models.DATA_PARALLEL, wrapped_models.DATA_PARALLEL_FUNCTION, *wrapped_models.DATA_PARALLEL_PARTS)
def unwrap_or_report(site: Site) -> None:
    """Unwrap DataParallel with `--data-parallel unwrap`; report it otherwise, and its functions in any case."""
    model = wrapped_models.get_wrapped_model(site.node)
    if site.target.is_any_card:
        report_for_any(site)
    elif site.name not in wrapped_models.DATA_PARALLEL:
        report_function(site)
    elif site.options.data_parallel == "unwrap" and model is not None and site.is_editable:
        unwrap_model(site, model)
    else:
        report_data_parallel(site)


def report_function(site: Site) -> None:
    """Report the functional form and the parts of DataParallel."""
    title, name = site.target.card.title, site.name.rpartition(".")[2]
    site.request_review(
        f"there is no {name} on the {title}: call the module itself, and start one process per card (torchrun)",
        zh=f"{title} 不支持 {name}:请直接调用模块,并用 torchrun 每卡启动一个进程",
        risk="high",
    )


@rule.reference(*wrapped_models.DATA_PARALLEL)
def report_derived(site: Site) -> None:
    parent = site.source.parents[site.node]
    if not isinstance(parent, ast.ClassDef) or site.node not in parent.bases:
        return
    if site.target.is_any_card:
        report_for_any(site)
    else:
        title = site.target.card.title
        site.request_review(
            f"{parent.name} derives from DataParallel, which the {title} does not have",
            zh=f"{parent.name} 继承自 DataParallel,{title} 不支持",
            risk="high",
        )


def report_for_any(site: Site) -> None:
    name = site.name.rpartition(".")[2]
    site.request_review(
        f"{name} runs on CUDA only: with several NPUs or MLUs use DistributedDataParallel under torchrun; with one, "
        "leave it out",
        zh=f"{name} 仅支持 CUDA:多张 NPU 或 MLU 请在 torchrun 下使用 DistributedDataParallel;单卡请去掉",
        risk="medium",
    )


def report_data_parallel(site: Site) -> None:
    """Report DataParallel with the code to write instead, with the names of this script."""
    card = site.target.card
    if wrapped_models.find_distributed_calls(site):
        site.request_review(
            f"there is no DataParallel on the {card.title}: start this script by its distributed path, one process "
            "per card; for one card --data-parallel unwrap",
            zh=f"{card.title} 不支持 DataParallel:请使用脚本已有的分布式路径,每卡一个进程;"
            "单卡可用 --data-parallel unwrap",
        )
        return
    model = wrapped_models.get_wrapped_model(site.node)
    name = ast.unparse(model) if model is not None else "model"
    site.request_review(
        f"there is no DataParallel on the {card.title}. One card: write {name} alone (--data-parallel unwrap). "
        f"Several: one process per card under torchrun (--data-parallel ddp does this if it can): "
        f'init_process_group("{card.backend}"), torch.{card.device}.set_device(LOCAL_RANK), '
        f"DistributedDataParallel({name}, device_ids=[LOCAL_RANK]), a DistributedSampler with set_epoch in the "
        f"training loader, saving on rank 0, destroy_process_group() at the end",
        zh=f"{card.title} 不支持 DataParallel。单卡:直接使用 {name}(--data-parallel unwrap)。"
        "多卡:用 torchrun 每卡一个进程(--data-parallel ddp 可在条件允许时自动改写):"
        f'init_process_group("{card.backend}")、'
        f"torch.{card.device}.set_device(LOCAL_RANK)、DistributedDataParallel({name}, device_ids=[LOCAL_RANK])、"
        f"训练数据使用 DistributedSampler 并调用 set_epoch、仅 rank 0 保存、最后 destroy_process_group()",
        risk="high",
    )


def unwrap_model(site: Site, model: ast.expr) -> None:
    """Replace the call by the model, or remove `model = DataParallel(model)`; edit uses of `.module` once."""
    statement = site.source.statement_around(site.node)
    target = wrapped_models.get_assigned_target(site, site.node)
    if (
        target is not None
        and getattr(statement, "value", None) is site.node
        and site.text_of(target) == site.text_of(model)
    ):
        site.edit.remove_statement(statement)
    else:
        site.edit.replace_node(site.node, site.text_of(model))
    site.report_change(
        "the model runs on one card, without DataParallel", zh="模型在单卡上运行,去掉 DataParallel", risk="medium"
    )
    if mark_once(site, "unwrapped"):
        remove_module_accesses(site)
        report_checkpoints(site)


def remove_module_accesses(site: Site) -> None:
    """Remove `.module` of unwrapped models, and report it of others; under a test for the wrapper it stays."""
    for node, is_unwrapped in wrapped_models.find_module_accesses(site):
        if wrapped_models.is_under_wrapper_test(site, node) or site.source.is_in_f_string(node):
            continue
        if is_unwrapped:
            site.edit.delete(site.source.span(node.value)[1], site.source.span(node)[1])
            site.report_change(
                "the model has no wrapper now: .module is removed", zh="模型不再有包装:去掉 .module", node=node
            )
        else:
            site.request_review(
                f"if {site.text_of(node.value)} was the wrapped model, it has no .module any more",
                zh=f"若 {site.text_of(node.value)} 是被包装的模型,则不再有 .module",
                node=node,
            )


def report_checkpoints(site: Site) -> None:
    """Report code that expects checkpoints whose keys begin with `module.`."""
    saved = {ast.unparse(call.args[1]) for call in site.file.index.calls.get("torch.save", []) if len(call.args) > 1}
    for call in site.file.index.methods.get("load_state_dict", []):
        if isinstance(call.func, ast.Attribute) and not NO_MODEL_NAME.search(site.text_of(call.func.value)):
            report_loading(site, call, saved)
    for node in site.source.nodes_of_type(ast.Subscript):
        if removes_module_prefix(site, node):
            site.request_review(
                f"{site.text_of(node)} may remove `module.`, which the keys of a model without DataParallel do not "
                f"have: write {site.text_of(node.value)}.removeprefix('module.'), which is right for both",
                zh=f"{site.text_of(node)} 可能用于去掉 `module.`,但未用 DataParallel 的模型没有该前缀:"
                f"请改为 {site.text_of(node.value)}.removeprefix('module.')",
                risk="high",
                node=node,
            )


def report_loading(site: Site, call: ast.Call, saved: set[str]) -> None:
    """Report a loaded checkpoint whose keys may begin with `module.`; `saved` are the files that this script saves."""
    state = site.values.assigned_value(call.args[0]) if call.args else None
    if isinstance(state, ast.Call) and method_name(state) == "state_dict":
        return  # the state of another model
    nodes = ast.walk(state) if state is not None else ()
    loads = [node for node in nodes if isinstance(node, ast.Call) and site.qualified_name(node.func) == "torch.load"]
    is_own_file = bool(loads) and all(load.args and ast.unparse(load.args[0]) in saved for load in loads)
    add_finding = site.advise if is_own_file else site.request_review
    add_finding(
        "a checkpoint that was saved before, from the wrapped model itself, has keys that begin with `module.`: remove "
        "that before loading (key.removeprefix('module.')). Checkpoints that this script saves now have plain keys",
        zh="此前由包装模型直接保存的权重,键以 `module.` 开头:加载前请去掉(key.removeprefix('module.'))。"
        "此脚本今后保存的权重没有该前缀",
        node=call,
    )


def removes_module_prefix(site: Site, node: ast.Subscript) -> bool:
    """Return True for `key[7:]` or `key[len("module."):]` in a loop over keys."""
    bounds, key = node.slice, plain_name(node.value)
    if not isinstance(bounds, ast.Slice) or bounds.lower is None or bounds.upper or not key:
        return False
    if not PREFIX_LENGTH.fullmatch(ast.unparse(bounds.lower)):
        return False
    loops = [item for parent in site.source.ancestors(node) for item in (parent, *getattr(parent, "generators", ()))]
    targets = [loop.target for loop in loops if isinstance(loop, ast.For | ast.comprehension)]
    return any(plain_name(inner) == key for target in targets for inner in ast.walk(target))
