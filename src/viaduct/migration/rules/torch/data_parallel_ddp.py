"""Turn DataParallel into DistributedDataParallel, one process per card under torchrun.

With `--data-parallel ddp`:

     import torch
    +import torch_npu
     from torch.utils.data import DataLoader
    +import os
    +from torch import distributed as dist
    +from torch.nn.parallel import DistributedDataParallel
    +from torch.utils.data import DistributedSampler


     def main(data):
    -    loader = DataLoader(data, batch_size=64, shuffle=True)
    +    loader = DataLoader(data, batch_size=64 // dist.get_world_size(), sampler=DistributedSampler(data))
    -    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    +    model = DistributedDataParallel(torch.nn.Linear(2, 2).npu(), device_ids=[local_rank])
         for epoch in range(3):
    +        loader.sampler.set_epoch(epoch)
             for x in loader:
                 model(x).sum().backward()
    -        torch.save(model.module.state_dict(), "model.pt")
    +        if dist.get_rank() == 0:
    +            torch.save(model.module.state_dict(), "model.pt")


     if __name__ == "__main__":
    +    local_rank = int(os.environ["LOCAL_RANK"])
    +    torch.npu.set_device(local_rank)
    +    dist.init_process_group("hccl")
         main(range(8))
    +    dist.destroy_process_group()

Each rank reads its share of the samples. The total batch, and so the learning rate, stays the same if the number of
ranks divides it. A shuffled loader gets a new order every epoch. Only rank 0 saves; every rank evaluates all data and
prints. If the script does not meet a condition for one of these edits, none is made, and the finding names the
condition.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.limits import Bilingual
from viaduct.migration.lookups import keyword_value, literal_text, method_name, plain_name
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules._entry import find_main_guard
from viaduct.migration.rules.torch import _wrapped_models as wrapped_models
from viaduct.migration.rules.torch._ddp_conditions import Plan, Refused, count_cards, plan_edits
from viaduct.migration.rules.torch._ddp_edits import Rewriter

rule = Rule(
    __name__,
    target_needs="data_parallel",
    spec_rows=("P14",),
    targets=ALL_CARDS,
    when=lambda options: options.data_parallel == "ddp",
    after=("device_string",),
)
OPEN_MODE = re.compile(r"[rwaxbt+]{1,3}")
REMOVING_FUNCTIONS = ("shutil.rmtree", "os.remove", "os.unlink")
WRITING_METHODS = ("write_text", "write_bytes", "to_csv", "savefig", "savez")
CARD_TEST = re.compile(r"device_count|is_available|cuda|npu|mlu")  # text of a condition about the available cards


@rule.file(only_if_file_contains=("DataParallel",))
def rewrite_script(site: Site) -> None:
    """Rewrite the script, or report the condition that it does not meet."""
    calls = wrapped_models.find_wrapping_calls(site)
    if not calls:
        return
    try:
        plan = plan_edits(site)
        rewriter = Rewriter(site, plan)
        rewriter.collect_card_numbers()
    except Refused as refused:
        report_refused(site, refused, calls[0])
        return
    rewriter.edit_script()
    report_rewrite(site, calls)
    advise_on_ranks(site, calls)
    report_shared_files(site, plan)


def report_refused(site: Site, refused: Refused, call: ast.Call) -> None:
    """Report the condition that does not hold, and usually the steps of the rewrite by hand."""
    node = refused.node
    line = site.file.original_line(node) if isinstance(node, ast.expr | ast.stmt) else 0
    location, location_zh = (f" (line {line})", f"(第 {line} 行)") if line else ("", "")
    english, chinese = describe_manual_steps(site) if refused.with_steps else ("", "")
    site.request_review(
        f"DataParallel stays: {refused.message}{location}{english}",
        zh=f"保留 DataParallel:{refused.zh}{location_zh}{chinese}",
        risk="high" if refused.with_steps else "medium",
        node=call,
    )


def describe_manual_steps(site: Site) -> Bilingual:
    """Return the steps of the rewrite by hand, in English and Chinese."""
    card = site.target.card
    init, set_device = f"init_process_group({card.backend!r})", f"torch.{card.device}.set_device(LOCAL_RANK)"
    return (
        f". By hand, in this order: {init} and {set_device} at the start; the model to that card and "
        "DistributedDataParallel(model, device_ids=[LOCAL_RANK]); a DistributedSampler for the training loader, the "
        "batch size divided by the number of ranks, sampler.set_epoch(epoch) in every epoch; saving on rank 0; "
        "destroy_process_group() at the end; start with torchrun --nproc_per_node=N",
        f"。请依次手工修改:启动时 {init} 与 {set_device};模型移到该卡并用 "
        "DistributedDataParallel(device_ids=[LOCAL_RANK]);训练数据使用 DistributedSampler,batch_size 除以 rank 数,"
        "每个 epoch 调用 set_epoch;仅 rank 0 保存;最后 destroy_process_group();用 torchrun --nproc_per_node=N 启动",
    )


def report_rewrite(site: Site, calls: list[ast.Call]) -> None:
    count = count_cards(calls[0])
    command = f"torchrun --nproc_per_node={count or 'N'} {site.file.path}"
    number, number_zh = ("", "") if count else (", N being the number of cards", ",N 为加速卡数量")
    for call in calls:
        site.report_change(
            f"one process per card instead of DataParallel: start it with `{command}`{number}. The total batch stays "
            "the same if the number of ranks divides it, and must not be smaller than that number; every rank "
            "evaluates all data and prints",
            zh=f"由 DataParallel 改为每卡一个进程:用 `{command}` 启动{number_zh}。"
            "batch_size 须能被 rank 数整除(且不小于 rank 数),此时全局 batch 不变;每个 rank 都评估全部数据并打印",
            risk="medium",
            node=call,
        )


def advise_on_ranks(site: Site, calls: list[ast.Call]) -> None:
    """Advise on code that behaves differently when several processes run it."""
    if len(calls) > 1:
        site.advise(
            "several wrapped models: if one is run twice before its backward, give it broadcast_buffers=False",
            zh="有多个被包装的模型:若某个模型在反向前运行两次,请设置 broadcast_buffers=False",
            node=calls[0],
        )
    for call in calls:
        test = find_wrapping_condition(site, call)
        if test is not None:
            site.advise(
                f"whether the model is wrapped depends on {site.text_of(test)}: without the wrapper several ranks "
                "would train separate models; start only one rank then",
                zh=f"是否包装模型取决于 {site.text_of(test)}:未包装时多个 rank 会各自训练,此时请只启动一个",
                node=call,
            )
    if "SummaryWriter(" in site.source.text or "wandb.init(" in site.source.text:
        site.advise(
            "every rank writes its own log: create the writer on rank 0 only if one log is enough",
            zh="每个 rank 各写一份日志:如只需一份,请仅在 rank 0 创建",
            node=calls[0],
        )
    if "VISIBLE_DEVICES" in site.source.text:
        site.advise(
            "the list of visible cards must have a card for every rank",
            zh="可见设备列表须为每个 rank 各列一张卡",
            node=calls[0],
        )


def report_shared_files(site: Site, plan: Plan) -> None:
    """Report calls that write or remove a file on every rank."""
    on_rank_0 = {node for saving in (*plan.saving_statements, *plan.saving_functions) for node in ast.walk(saving)}
    for call in site.source.nodes_of_type(ast.Call):
        if call not in on_rank_0 and writes_file(site, call):
            text = site.text_of(call)
            site.request_review(
                f"every rank does this, perhaps on one file: {text}. Let only rank 0 do it (dist.get_rank() == 0), "
                "or give each rank its own file",
                zh=f"每个 rank 都会执行(可能是同一文件):{text}。请仅在 rank 0 执行(dist.get_rank() == 0),"
                "或让各 rank 使用不同文件",
                node=call,
            )


def writes_file(site: Site, call: ast.Call) -> bool:
    """Return True for a call that writes or removes a file."""
    name, method = site.qualified_name(call.func) or plain_name(call.func), method_name(call)
    if name.rpartition(".")[2] != "open" and method != "open":
        return name in REMOVING_FUNCTIONS or method in WRITING_METHODS
    # The mode is the second argument of open(path, mode), the first of path.open(mode).
    arguments = [*call.args[1:2], *([] if name else call.args[:1]), keyword_value(call, "mode")]
    modes = [literal_text(argument) for argument in arguments]
    return any(OPEN_MODE.fullmatch(mode) and set(mode) & set("wax+") for mode in modes)


def find_wrapping_condition(site: Site, call: ast.Call) -> ast.expr | None:
    """Return the innermost `if` condition around a call that is not about the available cards; None without one."""
    function = site.source.function_around(call)
    for parent in site.source.ancestors(call):
        if parent is function:
            break
        is_main_guard = parent is find_main_guard(site)
        if isinstance(parent, ast.If) and not is_main_guard and not CARD_TEST.search(site.text_of(parent.test)):
            return parent.test
    return None
