"""Say of every DataParallel that the accelerator has none, or take it off with `--data-parallel unwrap`.

     import torch
     model = torch.nn.Linear(2, 2)
    -model = torch.nn.DataParallel(model)
     x = torch.zeros(1, 2)
    -torch.save(model.module.state_dict(), "model.pt")
    +torch.save(model.state_dict(), "model.pt")

DataParallel is one process that drives all cards; the accelerators' plug-ins do not support it. On one card the model
does without. For several, `--data-parallel ddp` makes it DistributedDataParallel where the script's shape allows it.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _wrapped as wrapped
from viaduct.migration.rules.torch._targets import card

rule = Rule(
    __name__,
    spec="P14",
    kind="mandatory",
    targets=("npu", "mlu"),
    order=70,
    on=lambda options: options.data_parallel != "ddp",
    patch=True,
)
EXAMPLE_OPTIONS = {"data_parallel": "unwrap"}


@rule.call(*wrapped.DATA_PARALLEL)
def wrapper(site: Site) -> None:
    model = wrapped.model_of(site.node)
    if site.options.data_parallel == "unwrap" and model is not None and site.editable:
        unwrap(site, model)
    else:
        report(site)


@rule.call(wrapped.FUNCTIONAL)
def functional(site: Site) -> None:
    title = card(site.options).title
    site.manual(
        f"there is no data_parallel on the {title}: call the module itself, and start one process a card (torchrun)",
        zh=f"{title} 不支持 data_parallel:请直接调用模块,并用 torchrun 每卡启动一个进程",
        risk="high",
    )


@rule.reference(*wrapped.DATA_PARALLEL)
def derived(site: Site) -> None:
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.ClassDef) and site.node in parent.bases:
        title = card(site.options).title
        site.manual(
            f"{parent.name} derives from DataParallel, which the {title} does not have",
            zh=f"{parent.name} 继承自 DataParallel,{title} 不支持",
            risk="high",
        )


def report(site: Site) -> None:
    """The recipe, in the words of this script."""
    chosen = card(site.options)
    if wrapped.distributed(site):
        site.manual(
            f"there is no DataParallel on the {chosen.title}: start this script by its distributed path, one process a "
            "card; for one card --data-parallel unwrap",
            zh=f"{chosen.title} 不支持 DataParallel:请使用脚本已有的分布式路径,每卡一个进程;"
            "单卡可用 --data-parallel unwrap",
        )
        return
    model = wrapped.model_of(site.node)
    name = ast.unparse(model) if model is not None else "model"
    site.manual(
        f"there is no DataParallel on the {chosen.title}. One card: write {name} alone (--data-parallel unwrap). "
        f"Several: one process a card under torchrun (--data-parallel ddp does this where it can): "
        f'init_process_group("{chosen.backend}"), torch.{chosen.device}.set_device(LOCAL_RANK), '
        f"DistributedDataParallel({name}, device_ids=[LOCAL_RANK]), a DistributedSampler with set_epoch in the "
        f"training loader, saving on rank 0, destroy_process_group() at the end",
        zh=f"{chosen.title} 不支持 DataParallel。单卡:直接使用 {name}(--data-parallel unwrap)。"
        f'多卡:用 torchrun 每卡一个进程(--data-parallel ddp 可自动改写):init_process_group("{chosen.backend}")、'
        f"torch.{chosen.device}.set_device(LOCAL_RANK)、DistributedDataParallel({name}, device_ids=[LOCAL_RANK])、"
        f"训练数据使用 DistributedSampler 并调用 set_epoch、仅 rank 0 保存、最后 destroy_process_group()",
        risk="high",
    )


def unwrap(site: Site, model: ast.expr) -> None:
    statement = site.source.statement(site.node)
    target = wrapped.target_of(site, site.node)
    if target is not None and getattr(statement, "value", None) is site.node and site.text(target) == site.text(model):
        site.edit.remove_statement(statement)
    else:
        site.edit.node(site.node, site.text(model))
    site.changed(
        "the model runs on one card, without DataParallel",
        zh="模型在单卡上运行,去掉 DataParallel",
        risk="medium",
    )
    if ("unwrapped",) not in site.work.seen:
        site.work.seen[("unwrapped",)] = None
        reach_directly(site)
        name_checkpoints(site)


def reach_directly(site: Site) -> None:
    """`model.module` is the model itself; one that asks first finds no wrapper and is right as it is."""
    for node, own in wrapped.through(site):
        if wrapped.guarded(site, node) or site.source.in_f_string(node):
            continue
        if own:
            site.edit.delete(site.source.span(node.value)[1], site.source.span(node)[1])
            site.changed("nothing is wrapped: .module goes", zh="不再有包装:去掉 .module", node=node)
        else:
            site.manual(
                f"if {site.text(node.value)} was the wrapped model, it has no .module any more",
                zh=f"若 {site.text(node.value)} 是被包装的模型,则不再有 .module",
                node=node,
            )


def name_checkpoints(site: Site) -> None:
    for call in site.work.index.methods.get("load_state_dict", []):
        site.manual(
            "keys of a checkpoint that was saved from the wrapped model begin with `module.`: take that off "
            "(key.removeprefix('module.')) before loading",
            zh="由包装模型保存的权重键以 `module.` 开头:加载前请去掉该前缀(key.removeprefix('module.'))",
            node=call,
        )
