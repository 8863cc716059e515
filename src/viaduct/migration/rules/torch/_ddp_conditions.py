"""Conditions for rewriting a script to one process per card, and the parts of the script that then change.

All conditions are checked before the first edit.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from viaduct.migration.lookups import bind_arguments, calls_to, keyword_value, method_name, plain_name
from viaduct.migration.rule import Site
from viaduct.migration.rules._entry import find_main_guard, is_imported_by_others, select_executed
from viaduct.migration.rules.torch import _wrapped_models as wrapped_models
from viaduct.migration.rules.torch._collectives import get_dict_items
from viaduct.migration.rules.torch._ddp_decisions import RankDecisions
from viaduct.migration.rules.torch._devices import MOVING_METHODS
from viaduct.migration.rules.torch._training import DATA_LOADERS, EpochLoop, LoaderTrace
from viaduct.migration.source import FunctionNode

SAVING_FUNCTIONS = ("torch.save", "torch.jit.save")
# Arguments of a DataLoader that a `**kwargs` must not hide.
LOADER_ARGUMENTS = {"shuffle", "sampler", "batch_sampler", "batch_size"}


class Refused(Exception):
    """A condition does not hold at a node. With `with_steps` the finding lists the steps of a rewrite by hand."""

    def __init__(self, message: str, zh: str, node: ast.AST | None = None, with_steps: bool = True) -> None:
        super().__init__(message)
        self.message, self.zh, self.node, self.with_steps = message, zh, node, with_steps


@dataclass
class Loader:
    """A training loader: its call, the arguments that change, and the loops over epochs in which it is used."""

    call: ast.Call
    dataset: ast.expr
    batch_size: ast.expr | None
    shuffle: ast.expr | None  # the argument; None if there is none
    is_shuffled: bool  # the value of `shuffle`, by default False
    epoch_loops: list[EpochLoop]


@dataclass
class Plan:
    """Parts of the script that have to be edited."""

    wrapping_calls: list[ast.Call]  # calls of DataParallel
    loaders: list[Loader]
    first_card_use: ast.stmt  # first statement of the started script that could use the card
    last_statement: ast.stmt  # last statement of the started script
    saving_statements: list[ast.stmt]
    saving_functions: list[FunctionNode]


def plan_edits(site: Site) -> Plan:
    """Return the parts to edit; raise Refused if a condition does not hold."""
    refuse_unsuitable_script(site)
    wrapping_calls = wrapped_models.find_wrapping_calls(site)
    for call in wrapping_calls:
        refuse_wrapping(call)
    training = find_training_loaders(site)
    loaders = [describe_loader(site, call, trace) for call, trace in training]
    refuse_batches(site, wrapping_calls, loaders)
    refuse_decisions(site, [trace for _, trace in training])
    first, last = find_entry(site)
    saving_functions, saving_statements = find_saving(site, loaders)
    return Plan(wrapping_calls, loaders, first, last, saving_statements, saving_functions)


def refuse_unsuitable_script(site: Site) -> None:
    """Refuse notebooks, scripts that are distributed already, and classes that derive from DataParallel."""
    if site.file.path.endswith(".ipynb"):
        raise Refused("torchrun starts a script, not a notebook", "torchrun 只能启动脚本,不能启动 notebook")
    for call in wrapped_models.find_distributed_calls(site):
        name = site.text_of(call.func).rpartition(".")[2]
        raise Refused(
            f"the script has a distributed path already ({name}): start it that way",
            f"脚本已有分布式路径({name}):请按该方式启动",
            call,
            with_steps=False,
        )
    for name in wrapped_models.DATA_PARALLEL:
        for node in site.file.index.references.get(name, []):
            parent = site.source.parents[node]
            if isinstance(parent, ast.ClassDef):
                raise Refused(f"{parent.name} derives from DataParallel", f"{parent.name} 继承自 DataParallel", node)


def refuse_wrapping(call: ast.Call) -> None:
    """Refuse a DataParallel whose model or arguments are in * or **, or that splits along another dimension than 0."""
    has_star = any(isinstance(value, ast.Starred) for value in call.args)
    has_double_star = any(keyword.arg is None for keyword in call.keywords)
    if has_star or has_double_star or wrapped_models.get_wrapped_model(call) is None:
        raise Refused("the call does not show which model is wrapped, and how", "无法看出被包装的模型及其方式", call)
    dim = bind_arguments(call, ("module", "device_ids", "output_device", "dim")).get("dim")
    if dim is not None and not (isinstance(dim, ast.Constant) and dim.value == 0):
        raise Refused("the batch is not split along dim 0", "批次不是沿第 0 维切分", call)


# ---- loaders


def find_training_loaders(site: Site) -> list[tuple[ast.Call, LoaderTrace]]:
    """Return the loaders of loops that compute gradients; refuse a script without any.

    Other loaders stay: they read all samples on every rank.
    """
    traces = [(call, LoaderTrace(site, call)) for call in calls_to(site, DATA_LOADERS)]
    training = [(call, trace) for call, trace in traces if trace.leads_to_training(site.source.tree.body)]
    if not training:
        raise Refused(
            "no loop that computes gradients uses a DataLoader of this file: the training data cannot be "
            "divided among the ranks",
            "本文件中没有用于训练循环的 DataLoader:无法划分训练数据",
            traces[0][0] if traces else None,
        )
    return training


def refuse_sampler(site: Site, call: ast.Call) -> None:
    """Refuse a loader with a sampler, with `*args`, or with a `**kwargs` that may have one of LOADER_ARGUMENTS."""
    if keyword_value(call, "sampler", "batch_sampler") is not None or len(call.args) > 3:  # the fourth is the sampler
        raise Refused("the training loader has an argument for a sampler", "训练数据加载器带有 sampler 参数", call)
    for value in (keyword.value for keyword in call.keywords if keyword.arg is None):
        items = get_dict_items(site.values.assigned_value(value))
        if items is None or LOADER_ARGUMENTS & {str(name) for name, _ in items}:
            text = site.text_of(value)
            raise Refused(
                f"the training loader gets arguments through **{text}", f"数据加载器通过 **{text} 接收参数", call
            )
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        raise Refused("the training loader gets arguments through *", "数据加载器通过 * 接收参数", call)


def describe_loader(site: Site, call: ast.Call, trace: LoaderTrace) -> Loader:
    """Return the dataset, batch size, order and epochs of a loader; refuse a loader that cannot be rewritten."""
    refuse_sampler(site, call)
    arguments = bind_arguments(call, ("dataset", "batch_size", "shuffle"))
    dataset, batch_size, shuffle = (arguments.get(name) for name in ("dataset", "batch_size", "shuffle"))
    statement = site.source.statement_around(call)
    is_complete_value = isinstance(statement, ast.Assign | ast.Return) and statement.value is call
    if dataset is None or not is_complete_value or site.edit.own_indent(statement) is None:
        raise Refused("the training loader is not simply assigned or returned", "训练数据不是简单赋值或返回", call)
    if isinstance(batch_size, ast.Constant) and not isinstance(batch_size.value, int):
        raise Refused("the training loader has no batch size", "训练数据加载器没有 batch_size", call)
    refuse_iterable_dataset(site, dataset)
    is_shuffled = read_shuffle(site, shuffle, call)
    return Loader(call, dataset, batch_size, shuffle, is_shuffled, find_epoch_loops(trace, call))


def refuse_batches(site: Site, wrapping_calls: list[ast.Call], loaders: list[Loader]) -> None:
    """Refuse a batch that is known to be 1, or not to be divisible by the number of cards in the first DataParallel."""
    count = count_cards(wrapping_calls[0])
    for loader in loaders:
        batch_size = loader.batch_size
        size = 1 if batch_size is None else getattr(site.values.assigned_value(batch_size), "value", None)
        if size == 1:  # 1 is also the default
            raise Refused(
                "a batch of 1 cannot be divided among ranks", "batch_size 为 1,无法划分到各 rank", loader.call
            )
        if isinstance(size, int) and count and size % count:
            raise Refused(
                f"the batch of {size} cannot be divided evenly among {count} ranks",
                f"batch_size {size} 不能被 {count} 个 rank 整除",
                loader.call,
            )


def count_cards(call: ast.Call) -> int:
    """Return the number of cards that a DataParallel lists; 0 where no list is written."""
    device_ids = bind_arguments(call, ("module", "device_ids")).get("device_ids")
    return len(device_ids.elts) if isinstance(device_ids, ast.List | ast.Tuple) else 0


def refuse_decisions(site: Site, traces: list[LoaderTrace]) -> None:
    """Refuse a script whose ranks could take different branches, see RankDecisions."""
    node = RankDecisions(site, traces).first_divergence()
    if node is not None:
        text = site.text_of(getattr(node, "test", node))
        raise Refused(
            f"`{text}` depends on the samples of one rank, such as its training loss: the ranks would decide "
            "differently. First average it over the ranks (dist.all_reduce(value), divided by dist.get_world_size())",
            f"`{text}` 取决于单个 rank 自己的样本(如训练 loss),各 rank 会作出不同决定。"
            "请先在各 rank 间求平均(dist.all_reduce,再除以 dist.get_world_size())",
            node,
        )


def read_shuffle(site: Site, value: ast.expr | None, call: ast.Call) -> bool:
    """Return the value of a loader's argument `shuffle`; refuse a value that is decided at run time."""
    if value is not None and not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
        text = site.text_of(value)
        raise Refused(
            f"whether the training loader shuffles is decided at run time ({text})",
            f"训练数据是否 shuffle 在运行时决定({text})",
            call,
        )
    return isinstance(value, ast.Constant) and value.value is True


def find_epoch_loops(trace: LoaderTrace, call: ast.Call) -> list[EpochLoop]:
    """Return the loops over epochs around the use of a loader; refuse a script without one."""
    epoch_loops = [*trace.find_epoch_loops()]
    if not epoch_loops:
        raise Refused(
            "no loop over epochs (`for epoch in range(…)`) was found around the loop over the training loader, in "
            "which set_epoch could be called",
            "未找到遍历训练数据的 epoch 循环(`for epoch in range(…)`),无法调用 set_epoch",
            call,
        )
    return epoch_loops


def refuse_iterable_dataset(site: Site, dataset: ast.expr) -> None:
    """Refuse an IterableDataset that is defined in this file: a DistributedSampler needs a length."""
    origin = site.values.assigned_value(dataset)
    name = plain_name(origin.func) if isinstance(origin, ast.Call) else ""
    classes = [node for node in site.source.tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    bases = [site.qualified_name(base) or "" for own_class in classes for base in own_class.bases]
    if any(base.endswith("IterableDataset") for base in bases):
        raise Refused(
            f"{name} is an IterableDataset: it has no sampler", f"{name} 是 IterableDataset,没有 sampler", dataset
        )


# ---- where the script starts


def find_entry(site: Site) -> tuple[ast.stmt, ast.stmt]:
    """Return the first statement of the started script that could use the card, and the last statement.

    If there is no main guard, or a statement before it moves something to a device, the first is searched at module
    level, else under the guard.
    """
    guard = find_main_guard(site)
    refuse_hidden_start(site, guard)
    block = site.source.tree.body
    is_early = guard is None or any(
        moves_to_device(site, item) for item in select_executed(block[: block.index(guard)])
    )
    if is_early and is_imported_by_others(site):
        raise Refused(
            "the file may use the card when it is imported, and others import it", "该文件在被导入时可能使用设备"
        )
    statements = block if is_early or guard is None else guard.body
    first = next((statement for statement in select_executed(statements) if may_use_card(site, statement)), None)
    if first is None or site.edit.own_indent(first) is None:
        raise Refused("the statement that starts the training was not found", "未找到启动训练的语句")
    return first, (guard.body if guard is not None else block)[-1]


def may_use_card(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement calls torch, a method that moves to a device, or a function or class of this file.

    A function or class with "arg" in its name is taken to parse arguments and does not count.
    """
    defined = {node.name for node in site.source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)}
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        is_of_torch = (site.qualified_name(call.func) or "").startswith("torch.")
        if is_of_torch or method_name(call) in MOVING_METHODS:
            return True
        if plain_name(call.func) in defined and "arg" not in plain_name(call.func):
            return True
    return False


def moves_to_device(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement calls `.cuda()`, `.to(…)` or the like."""
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    moving = (call.func for call in calls if method_name(call) in MOVING_METHODS)
    return any(not (site.qualified_name(function) or "").startswith("torch.") for function in moving)


def refuse_hidden_start(site: Site, guard: ast.If | None) -> None:
    """Refuse a script whose last statement is a definition or import, or starts a function that has a decorator.

    Refuse also a script in which a function chooses the visible cards.
    """
    last = (guard.body if guard is not None else site.source.tree.body)[-1]
    if isinstance(last, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom):
        raise Refused(
            "the file ends with a definition or import: no start was found", "该文件以定义或导入结尾,未找到启动语句"
        )
    for node in ast.walk(last):
        started = plain_name(node.func) if isinstance(node, ast.Call) else ""
        for function in site.source.tree.body:
            if isinstance(function, FunctionNode) and function.name == started and function.decorator_list:
                raise Refused(f"{started} is started through a decorator", f"{started} 通过装饰器启动", node)
    for node in site.source.nodes_of_type(ast.Assign):
        if site.source.function_around(node) is not None and "VISIBLE_DEVICES" in site.text_of(node):
            raise Refused("a function chooses the visible cards", "在函数内设置可见设备", node)


# ---- saving


def find_saving(site: Site, loaders: list[Loader]) -> tuple[list[FunctionNode], list[ast.stmt]]:
    """Return the functions that are for saving, and the saving statements outside them."""
    training_functions = {site.source.function_around(found.loop) for loader in loaders for found in loader.epoch_loops}
    functions: dict[FunctionNode, None] = {}  # an ordered set
    statements: dict[ast.stmt, None] = {}
    for call in calls_to(site, SAVING_FUNCTIONS):
        function = site.source.function_around(call)
        if function is not None and function not in training_functions and is_for_saving(function):
            functions[function] = None
        else:
            statements[find_saving_statement(site, call)] = None
    return [*functions], [*statements]


def is_for_saving(function: FunctionNode) -> bool:
    """Return True for a function that is named for saving and returns nothing."""
    is_named = any(text in function.name.lower() for text in ("save", "checkpoint"))
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))
    return is_named and not returns


def find_saving_statement(site: Site, call: ast.Call) -> ast.stmt:
    """Return the statement that saves, or the `with open(…)` around it; refuse one that cannot be put under an `if`."""
    statement: ast.stmt = site.source.statement_around(call)
    if not isinstance(statement, ast.Expr):
        raise Refused("a checkpoint is saved within another statement", "在其他语句内保存权重", call)
    while isinstance(parent := site.source.parents[statement], ast.With) and "open" in ast.unparse(parent.items[0]):
        statement = parent
    if site.edit.own_indent(statement) is None:
        raise Refused("a checkpoint is saved on the line of another statement", "保存语句与其他语句同行", call)
    return statement
