"""Conditions for rewriting a script to one process per card, and the reasons against it. Not a rule.

Every condition is checked before anything is edited: a script that is half distributed is worse than one that is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._entry import main_guard
from viaduct.migration.rules.torch import _wrapped as wrapped
from viaduct.migration.rules.torch._ddp_decisions import Decisions
from viaduct.migration.rules.torch._training import Epochs, FunctionNode, Loaders, loaders

MOVES = ("cuda", "npu", "mlu", "to")
SAVES = ("torch.save", "torch.jit.save")


class Refused(Exception):
    """One condition that does not hold, in English and Chinese, and where.

    recipe: the finding explains how to rewrite the script by hand.
    """

    def __init__(self, message: str, zh: str, node: ast.AST | None = None, recipe: bool = True) -> None:
        super().__init__(message)
        self.message, self.zh, self.node, self.recipe = message, zh, node, recipe


@dataclass
class Loading:
    """A training loader: its call, and the arguments that change."""

    call: ast.Call
    dataset: ast.expr
    batch: ast.expr | None
    shuffle: ast.expr | None  # None: not written
    shuffles: bool
    epochs: list[Epochs] = field(default_factory=list)


@dataclass
class Plan:
    """Parts of the script that have to be edited."""

    wraps: list[ast.Call]
    loading: list[Loading]
    block: list[ast.stmt]  # of the entry: the main guard's, or the module's own
    first: ast.stmt  # the first statement of it that could use the card
    last: ast.stmt
    saves: list[ast.stmt]
    savers: list[FunctionNode]  # functions that are named for saving and return nothing


def plan_edits(site: Site) -> Plan:
    """Return the parts to edit; raise Refused with the first condition that does not hold."""
    refuse_others(site)
    wraps = [*wrapped.wraps(site)]
    for call in wraps:
        refuse_wrap(call)
    training = training_loaders(site)
    loading = [describe_loader(site, call, seen) for call, seen in training]
    refuse_batches(site, wraps, loading)
    refuse_decisions(site, [seen for _, seen in training])
    block, first = entry_of(site)
    savers, saves = find_saving(site, loading)
    return Plan(wraps, loading, block, first, block[-1], saves, savers)


def refuse_others(site: Site) -> None:
    """Refuse notebooks, scripts with a distributed path of their own, and classes that derive from DataParallel."""
    if site.work.path.endswith(".ipynb"):
        raise Refused("torchrun starts a script, not a notebook", "torchrun 只能启动脚本,不能启动 notebook")
    for call in wrapped.distributed_calls(site):
        name = site.text(call.func).rpartition(".")[2]
        raise Refused(
            f"the script has a distributed path already ({name}): start it that way",
            f"脚本已有分布式路径({name}):请按该方式启动",
            call,
            recipe=False,
        )
    for name in wrapped.DATA_PARALLEL:
        for node in site.work.index.references.get(name, []):
            parent = site.source.parents[node]
            if isinstance(parent, ast.ClassDef):
                raise Refused(f"{parent.name} derives from DataParallel", f"{parent.name} 继承自 DataParallel", node)


def refuse_wrap(call: ast.Call) -> None:
    """Refuse a DataParallel whose model or arguments cannot be seen, or that splits along another dimension than 0."""
    if wrapped.model_of(call) is None or any(given.arg is None for given in call.keywords):
        raise Refused("it cannot be seen which model is wrapped", "无法看出被包装的模型", call)
    for keyword in call.keywords:
        if keyword.arg == "dim" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value == 0):
            raise Refused("the batch is not split along dim 0", "批次不是沿第 0 维切分", call)


# ---- loaders


def training_loaders(site: Site) -> list[tuple[ast.Call, Loaders]]:
    """Return the loaders of loops that compute gradients; the others may see all samples on every rank."""
    found = [(call, Loaders(site, call)) for call in loaders(site)]
    training = [(call, seen) for call, seen in found if seen.trains()]
    if not training:
        raise Refused(
            "no loop that computes gradients goes over a DataLoader made in this file: the training data cannot be "
            "shared out",
            "本文件中没有用于训练循环的 DataLoader:无法划分训练数据",
            found[0][0] if found else None,
        )
    return training


def refuse_sampler(site: Site, call: ast.Call) -> None:
    """Refuse a loader with a sampler of its own, or with arguments that cannot be seen."""
    given = {keyword.arg for keyword in call.keywords}
    if given & {"sampler", "batch_sampler"} or len(call.args) > 3:  # the fourth positional argument is the sampler
        raise Refused("the training loader has a sampler of its own", "训练数据使用了自定义 sampler", call)
    if None in given or any(isinstance(argument, ast.Starred) for argument in call.args):
        refuse_hidden(site, call)


def refuse_hidden(site: Site, call: ast.Call) -> None:
    """Refuse unpacked arguments, except a `**kwargs` written out without batch size, order and sampler."""
    from viaduct.migration.rules.torch._collectives import dict_items

    for keyword in call.keywords:
        items = dict_items(site.values.origin(keyword.value)) if keyword.arg is None else []
        if items is None or {"shuffle", "sampler", "batch_sampler", "batch_size"} & {str(name) for name, _ in items}:
            text = site.text(keyword.value)
            raise Refused(
                f"the training loader gets arguments through **{text}", f"数据加载器通过 **{text} 接收参数", call
            )
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        raise Refused("the training loader gets arguments through *", "数据加载器通过 * 接收参数", call)


def describe_loader(site: Site, call: ast.Call, seen: Loaders) -> Loading:
    """Return the dataset, batch size, order and epochs of one loader; refuse one that cannot be rewritten."""
    refuse_sampler(site, call)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    dataset = call.args[0] if call.args else given.get("dataset")
    batch = call.args[1] if len(call.args) > 1 else given.get("batch_size")
    statement = site.source.statement(call)
    plain = isinstance(statement, ast.Assign | ast.Return) and statement.value is call
    if dataset is None or not plain or site.edit.own_indent(statement) is None:
        raise Refused("the training loader is not simply assigned or returned", "训练数据不是简单赋值或返回", call)
    if isinstance(batch, ast.Constant) and not isinstance(batch.value, int):
        raise Refused("the training loader has no batch size", "训练数据加载器没有 batch_size", call)
    refuse_iterable(site, dataset)
    shuffle = given.get("shuffle", call.args[2] if len(call.args) > 2 else None)
    return Loading(call, dataset, batch, shuffle, shuffles(site, shuffle, call), epochs_of(seen, call))


def refuse_batches(site: Site, wraps: list[ast.Call], loading: list[Loading]) -> None:
    """Refuse a batch of 1, and one that the number of cards named in the wrapper does not divide."""
    count = count_cards(wraps[0])
    for held in loading:
        batch = 1 if held.batch is None else getattr(site.values.origin(held.batch), "value", None)
        if batch == 1:
            raise Refused("a batch of 1 cannot be shared out", "batch_size 为 1,无法划分到各 rank", held.call)
        if isinstance(batch, int) and count and batch % count:
            raise Refused(
                f"the batch of {batch} cannot be shared out evenly among {count} ranks",
                f"batch_size {batch} 不能被 {count} 个 rank 整除",
                held.call,
            )


def count_cards(call: ast.Call) -> int:
    """Return the number of cards that are named; 0 where that is not written."""
    given = call.args[1:2] + [keyword.value for keyword in call.keywords if keyword.arg == "device_ids"]
    return len(given[0].elts) if given and isinstance(given[0], ast.List | ast.Tuple) else 0


def refuse_decisions(site: Site, training: list[Loaders]) -> None:
    """Refuse a script in which one rank could decide otherwise than another."""
    node = Decisions(site, training).first_divergence()
    if node is not None:
        text = site.text(getattr(node, "test", node))
        raise Refused(
            f"`{text}` follows what one rank alone has seen, the loss of its own samples: the ranks would decide "
            "differently. First average it over the ranks (dist.all_reduce(value), divided by dist.get_world_size())",
            f"`{text}` 取决于单个 rank 自己的样本(如训练 loss),各 rank 会作出不同决定。"
            "请先在各 rank 间求平均(dist.all_reduce,再除以 dist.get_world_size())",
            node,
        )


def shuffles(site: Site, value: ast.expr | None, call: ast.Call) -> bool:
    """Return True if a loader shuffles; refuse where that is decided at run time."""
    if value is not None and not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
        text = site.text(value)
        raise Refused(
            f"whether the training loader shuffles is decided at run time ({text})",
            f"训练数据是否 shuffle 在运行时决定({text})",
            call,
        )
    return isinstance(value, ast.Constant) and value.value is True


def epochs_of(seen: Loaders, call: ast.Call) -> list[Epochs]:
    """Return the loops over epochs around the use of a loader; refuse a script without one."""
    epochs = [*seen.epochs()]
    if not epochs:
        raise Refused(
            "no loop over epochs (`for epoch in range(…)`) was found around the loop over the training loader, in "
            "which set_epoch could be called",
            "未找到遍历训练数据的 epoch 循环(`for epoch in range(…)`),无法调用 set_epoch",
            call,
        )
    return epochs


def refuse_iterable(site: Site, dataset: ast.expr) -> None:
    """Refuse a dataset whose class in this file is an IterableDataset: a DistributedSampler needs a length."""
    made = site.values.origin(dataset)
    name = getattr(made.func, "id", "") if isinstance(made, ast.Call) else ""
    own = [node for node in site.source.tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    bases = [site.qualified(base) or "" for node in own for base in node.bases]
    if any(base.endswith("IterableDataset") for base in bases):
        raise Refused(
            f"{name} is an IterableDataset: it has no sampler", f"{name} 是 IterableDataset,没有 sampler", dataset
        )


# ---- the entry


def entry_of(site: Site) -> tuple[list[ast.stmt], ast.stmt]:
    """Return the block that runs when the script is started, and the first statement that could use the card.

    Where something goes to the card before the main guard, the rank's card must be chosen at module level.
    """
    guard = main_guard(site)
    refuse_hidden_start(site, guard)
    block = site.source.tree.body
    early = guard is None or any(moves(site, line) for line in walk_executed(block[: block.index(guard)]))
    if early and imported_by_others(site):
        raise Refused("the file uses the card when it is imported, and others import it", "该文件在被导入时即使用设备")
    statements = block if early or guard is None else guard.body
    first = next((statement for statement in walk_executed(statements) if touches(site, statement)), None)
    if first is None or site.edit.own_indent(first) is None:
        raise Refused("the statement that starts the training was not found", "未找到启动训练的语句")
    return guard.body if guard is not None else block, first


def imported_by_others(site: Site) -> bool:
    """Return True if another file of the project imports this one."""
    project, path = site.work.project, site.work.path
    return (
        path in {node for held in project.imports.values() for node in held}
        or project.module_of(path)[0] in project.named
    )


def walk_executed(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block that are neither definitions nor imports."""
    for statement in block:
        if not isinstance(statement, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom):
            yield statement


def touches(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement calls torch, a move to a device, or a function or class of this file.

    A function with "arg" in its name is taken to parse arguments and does not count.
    """
    defined = {node.name for node in site.source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = site.qualified(node.func) or ""
            if name.startswith("torch.") or getattr(node.func, "attr", "") in MOVES:
                return True
            if getattr(node.func, "id", "") in defined and "arg" not in getattr(node.func, "id", ""):
                return True
    return False


def moves(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement calls a method that moves something to a device: `.cuda()`, `.to(…)`."""
    for node in ast.walk(statement):
        method = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if method in MOVES and not (site.qualified(node.func) or "").startswith("torch."):  # type: ignore[attr-defined]
            return True
    return False


def refuse_hidden_start(site: Site, guard: ast.If | None) -> None:
    """Refuse a file that is no script, a start through a decorator, and a function that chooses the visible cards."""
    last = (guard.body if guard is not None else site.source.tree.body)[-1]
    if isinstance(last, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom):
        raise Refused("this file is not the one that is started", "该文件不是启动脚本")
    for node in ast.walk(last):
        started = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        for function in site.source.tree.body:
            if isinstance(function, FunctionNode) and function.name == started and function.decorator_list:
                raise Refused(f"{started} is started through a decorator", f"{started} 通过装饰器启动", node)
    for node in site.source.of_kind(ast.Assign):
        if site.source.function(node) is not None and "VISIBLE_DEVICES" in site.text(node):
            raise Refused("a function chooses the visible cards", "在函数内设置可见设备", node)


# ---- saving


def find_saving(site: Site, loading: list[Loading]) -> tuple[list[FunctionNode], list[ast.stmt]]:
    """Return the functions that save, which return at once on other ranks, and the other statements that save."""
    training = {site.source.function(item.loop) for held in loading for item in held.epochs}
    savers: list[FunctionNode] = []
    saves: list[ast.stmt] = []
    for name in SAVES:
        for call in site.work.index.calls.get(name, []):
            function = site.source.function(call)
            if function is not None and function not in training and is_saver(function):
                savers += [function] if function not in savers else []
                continue
            statement = saving_statement(site, call)
            if statement not in saves:
                saves.append(statement)
    return savers, saves


def is_saver(function: FunctionNode) -> bool:
    """Return True for a function that is named for saving and returns nothing."""
    named = any(text in function.name.lower() for text in ("save", "checkpoint"))
    gives = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))
    return named and not gives


def saving_statement(site: Site, call: ast.Call) -> ast.stmt:
    """Return the statement that saves, or the `with open(…)` around it; refuse one that cannot stand under an `if`."""
    statement: ast.stmt = site.source.statement(call)
    if not isinstance(statement, ast.Expr):
        raise Refused("a checkpoint is saved within another statement", "在其他语句内保存权重", call)
    while isinstance(parent := site.source.parents[statement], ast.With) and "open" in ast.unparse(parent.items[0]):
        statement = parent
    if site.edit.own_indent(statement) is None or len(site.source.block(statement)) == 0:
        raise Refused("a checkpoint is saved on the line of another statement", "保存语句与其他语句同行", call)
    return statement
