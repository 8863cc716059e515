"""Edits that turn a script into one process per card. Not a rule: data_parallel_ddp makes all of them or none."""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Site
from viaduct.migration.rules.torch import _wrapped as wrapped
from viaduct.migration.rules.torch._ddp_conditions import Loading, Plan, Refused
from viaduct.migration.targets import card

INDEXED = re.compile(r"(?:cuda|npu|mlu):\d+")
SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
MOVED = ("cuda", "npu", "mlu", "to")


class Writer:
    """Edits that turn one script into a program for several ranks: all of them, or none."""

    def __init__(self, site: Site, plan: Plan) -> None:
        self.site, self.plan, self.card = site, plan, card(site.options)
        self.indexed: list[tuple[ast.AST, str]] = []  # places that name one card, and what they become
        self.gone: list[ast.stmt] = []

    # ---- the last conditions

    def check(self) -> None:
        """Collect the places that name a card by its number; refuse one that cannot become the rank's card."""
        source = self.site.source
        for node in source.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and INDEXED.fullmatch(node.value):
                if not source.in_f_string(node):
                    self.indexed.append((node, node.value))
            elif isinstance(node, ast.JoinedStr) and is_card(node):
                self.indexed.append((node, ""))
            elif isinstance(node, ast.Call):
                self.check_call(node)

    def check_call(self, call: ast.Call) -> None:
        """Mark a `set_device` for removal and the number in `.cuda(0)`; refuse a block for one card."""
        name = self.site.qualified(call.func) or ""
        if name in (f"torch.{item}.set_device" for item in MOVED):
            statement = self.site.source.statement(call)
            if not isinstance(statement, ast.Expr):
                raise Refused("set_device stands within another statement", "set_device 位于其他语句内", call)
            self.gone.append(statement)
        elif name in (f"torch.{node}.device" for node in MOVED):
            raise Refused("a block chooses a card by its number", "代码块按编号选择设备", call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in MOVED[:3] and call.args and not name:
            if not self.is_number(call.args[0]):
                text = self.site.text(call.args[0])
                raise Refused(f"it cannot be seen which card {text} is", f"无法看出 {text} 是哪张卡", call)
            self.indexed.append((call, "argument"))

    def is_number(self, value: ast.expr) -> bool:
        """Return True for what looks like the number of a device."""
        if isinstance(value, ast.Constant):
            return isinstance(value.value, int)
        return any(text in ast.unparse(value).lower() for text in ("gpu", "device_ids", "rank"))

    # ---- names

    def module(self, qualified: str, wanted: str) -> str:
        """The local name of a module, imported if it is not yet."""
        known = self.site.work.names.local(qualified)
        if known is not None:
            return known
        local = self.site.free_name(wanted)
        self.site.work.needed[local] = self.site.work.names.added[local] = qualified
        return local

    def name(self, module: str, name: str) -> str:
        """Return the local name of something, importing it if need be."""
        return self.site.work.need(module, name)

    # ---- writing

    def write(self) -> None:
        """Make all edits; the conditions were checked before."""
        self.dist = self.module("torch.distributed", "dist")
        self.local_rank = self.site.free_name("local_rank")
        self.parallel = self.name("torch.nn.parallel", "DistributedDataParallel")
        self.write_cards()
        for call in self.plan.wraps:
            self.write_wrap(call)
        self.rename_references()
        self.write_downloads()
        for loading in self.plan.loading:
            self.write_loader(loading)
        self.write_epochs()
        self.write_saving()
        self.write_loading_back()
        self.write_folders()
        self.write_entry()

    def write_cards(self) -> None:
        """Remove the numbers of cards: a device without a number is the current one, which is the rank's."""
        edit, source = self.site.edit, self.site.source
        for node, what in self.indexed:
            if what == "argument":
                assert isinstance(node, ast.Call)
                slots, _ = source.slots(source.opening(node))
                edit.remove_slot(slots, 0)
            elif what:
                start, end = source.span(node)
                edit.replace(start, end, source.text[start:end].replace(what, self.card.device))
            else:
                edit.node(node, f'"{self.card.device}"')
        for statement in self.gone:
            edit.remove_statement(statement)

    def write_wrap(self, call: ast.Call) -> None:
        """Wrap the model in DistributedDataParallel on the rank's card."""
        model = wrapped.model_of(call)
        assert model is not None
        text = self.site.text(model)
        moved = isinstance(model, ast.Call) and getattr(model.func, "attr", "") in MOVED
        if not moved:
            text = f"{text if isinstance(model, SIMPLE) else f'({text})'}.{self.card.method}()"
        self.site.edit.node(call, f"{self.parallel}({text}, device_ids=[{self.local_rank}])")

    def rename_references(self) -> None:
        """Let `isinstance(model, nn.DataParallel)` test for DistributedDataParallel."""
        for name in wrapped.DATA_PARALLEL:
            for node in self.site.work.index.references.get(name, []):
                if not self.site.source.in_f_string(node):
                    self.site.edit.node(node, self.parallel)

    def write_downloads(self) -> None:
        """Let rank 0 download first, in calls with download=True; the other ranks wait and then find the files."""
        rank, done = f"{self.dist}.get_rank()", set()
        for call in self.site.source.of_kind(ast.Call):
            assert isinstance(call, ast.Call)
            statement = self.site.source.statement(call)
            if not downloads(call) or statement in done or self.site.edit.own_indent(statement) is None:
                continue
            done.add(statement)
            unit = self.site.source.indent_unit
            self.site.edit.insert_before(statement, [f"if {rank} != 0:", f"{unit}{self.dist}.barrier()"])
            self.site.edit.insert_after(statement, [f"if {rank} == 0:", f"{unit}{self.dist}.barrier()"])
            self.site.changed(
                "rank 0 downloads first, the other ranks wait", zh="rank 0 先下载,其余 rank 等待", node=statement
            )

    def write_loader(self, loading: Loading) -> None:
        """Give the training loader a DistributedSampler and its share of the batch."""
        site, dataset = self.site, loading.dataset
        sampler = self.name("torch.utils.data", "DistributedSampler")
        data = site.text(dataset)
        if not isinstance(dataset, ast.Name | ast.Attribute):
            data = site.free_name("train_dataset")
            site.edit.insert_before(site.source.statement(loading.call), [f"{data} = {site.text(dataset)}"])
            site.edit.replace(*site.source.span(dataset), data)
        given = f"sampler={sampler}({data}{'' if loading.shuffles else ', shuffle=False'})"
        keyword = next((item for item in loading.call.keywords if item.value is loading.shuffle), None)
        if loading.shuffle is None:
            site.edit.add_argument(loading.call, given)
        else:
            site.edit.replace(*site.source.span(keyword or loading.shuffle), given)
        if loading.batch is not None:
            start, end = site.source.span(loading.batch)
            plain = isinstance(loading.batch, (*SIMPLE, ast.Constant))
            text = site.text(loading.batch) if plain else f"({site.text(loading.batch)})"
            site.edit.replace(start, end, f"{text} // {self.dist}.get_world_size()")
        site.changed(
            "each rank reads its share of the samples; the batch of all ranks together stays the same if the number of "
            "ranks divides it",
            zh="各 rank 读取各自的样本;batch_size 能被 rank 数整除时全局 batch 不变",
            risk="medium",
            node=loading.call,
        )

    def write_epochs(self) -> None:
        """Call `set_epoch` at the head of every loop over epochs."""
        lines: dict[ast.For, list[str]] = {}
        for item in (held for loading in self.plan.loading for held in loading.epochs):
            text = f"{item.loader}.sampler.set_epoch({item.epoch})"
            if text not in lines.setdefault(item.loop, []):
                lines[item.loop].append(text)
        for loop, held in lines.items():
            self.site.edit.insert_before(loop.body[0], held)
            self.site.changed(
                "set_epoch gives every epoch an order of its own",
                zh="set_epoch 使每个 epoch 顺序不同",
                node=loop.body[0],
            )

    def write_saving(self) -> None:
        """Let rank 0 alone save."""
        unit = self.site.source.indent_unit
        for function in self.plan.savers:
            first = first_of(function)
            self.site.edit.insert_before(first, [f"if {self.dist}.get_rank() != 0:", f"{unit}return"])
            self.site.changed("rank 0 alone saves", zh="仅 rank 0 保存", node=first)
        for statement in self.plan.saves:
            self.indent(statement, f"if {self.dist}.get_rank() == 0:", unit)
            self.site.changed("rank 0 alone saves", zh="仅 rank 0 保存", node=statement)

    def indent(self, statement: ast.stmt, header: str, unit: str) -> None:
        """Put a statement under a condition: every line of it moves right, but not those within a string."""
        source, edit = self.site.source, self.site.edit
        start, end = source.span(statement)
        edit.insert_before(statement, [header])
        held = edit.lines_within_strings(start, end)
        for line in range(source.line_of(start), source.line_of(end) + 1):
            begin = source.starts[line - 1]
            if line not in held and source.text[begin : source.line_stop(begin)].strip():
                edit.insert(begin, unit)

    def write_loading_back(self) -> None:
        """Let ranks wait before a torch.load behind the training loop, until rank 0 has saved."""
        ends = {self.site.source.function(item.loop): item.loop for held in self.plan.loading for item in held.epochs}
        done: set[ast.stmt] = set()
        for call in self.site.work.index.calls.get("torch.load", []):
            loop = ends.get(self.site.source.function(call))
            statement = self.site.source.statement(call)
            if loop is None or call.lineno <= (loop.end_lineno or 0) or statement in done:
                continue
            done.add(statement)
            self.site.edit.insert_before(statement, [f"{self.dist}.barrier()"])
            self.site.changed("all wait until rank 0 has saved", zh="等待 rank 0 保存完成", node=statement)

    def write_folders(self) -> None:
        """Let os.makedirs and os.mkdir accept a folder that exists: several ranks make it at once."""
        for call in self.site.work.index.calls.get("os.makedirs", []):
            if len(call.args) < 3 and not any(keyword.arg in (None, "exist_ok") for keyword in call.keywords):
                self.site.edit.add_argument(call, "exist_ok=True")
        for call in self.site.work.index.calls.get("os.mkdir", []):
            if isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords:
                end = self.site.source.span(call.func)[1]
                self.site.edit.replace(end - len("mkdir"), end, "makedirs")
                self.site.edit.add_argument(call, "exist_ok=True")

    def write_entry(self) -> None:
        """Set the device and start the process group where the script starts."""
        environ = self.module("os", "os")
        torch = self.module("torch", "torch")
        lines = [
            f'{self.local_rank} = int({environ}.environ["LOCAL_RANK"])',
            f"{torch}.{self.card.device}.set_device({self.local_rank})",
            f'{self.dist}.init_process_group("{self.card.backend}")',
        ]
        self.site.edit.insert_before(self.plan.first, lines)
        self.site.changed(
            f"torchrun starts one process per card; each takes its own and joins the others over {self.card.backend}",
            zh=f"torchrun 为每张卡启动一个进程,各占一卡,通过 {self.card.backend} 通信",
            node=self.plan.first,
        )
        self.write_end()

    def write_end(self) -> None:
        """Destroy the process group where the script ends."""
        last, end = self.plan.last, f"{self.dist}.destroy_process_group()"
        inner = exit_value(last)
        if inner is None:
            self.site.edit.insert_after(last, [end])
            return
        status = self.site.free_name("status")
        self.site.edit.insert_before(last, [f"{status} = {self.site.text(inner)}", end])
        self.site.edit.replace(*self.site.source.span(inner), status)


def downloads(call: ast.Call) -> bool:
    """Return True for a call with download=True."""
    values = (keyword.value for keyword in call.keywords if keyword.arg == "download")
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


def exit_value(statement: ast.stmt) -> ast.expr | None:
    """`main()` of `sys.exit(main())` or `raise SystemExit(main())`: nothing behind it would run."""
    value = statement.exc if isinstance(statement, ast.Raise) else getattr(statement, "value", None)
    if not isinstance(value, ast.Call) or not value.args:
        return None
    return value.args[0] if ast.unparse(value.func) in ("sys.exit", "exit", "SystemExit") else None


def is_card(text: ast.JoinedStr) -> bool:
    """f"cuda:{index}"."""
    head = text.values[0] if text.values else None
    return isinstance(head, ast.Constant) and head.value in ("cuda:", "npu:", "mlu:") and len(text.values) == 2


def first_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    """Return the first statement of a function behind its docstring."""
    first = function.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(function.body) > 1
    return function.body[1] if text else first
