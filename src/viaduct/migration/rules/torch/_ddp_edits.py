"""Edits that turn a DataParallel script into a DistributedDataParallel script, with one process per card."""

from __future__ import annotations

import ast
import re

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.lookups import calls_to, keyword_value, method_name
from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Site
from viaduct.migration.rules._entry import first_statement
from viaduct.migration.rules.torch import _wrapped_models as wrapped_models
from viaduct.migration.rules.torch._ddp_conditions import Loader, Plan, Refused
from viaduct.migration.rules.torch._devices import MOVING_METHODS

NUMBERED_DEVICE = re.compile(r"(?:cuda|npu|mlu):\d+")
NO_PARENTHESES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)  # before `.npu()`


class Rewriter:
    """Rewrites a script as a program for several ranks, in two steps.

    First `collect_card_numbers`, which may raise Refused, then `edit_script`.
    """

    def __init__(self, site: Site, plan: Plan) -> None:
        self.site, self.plan, self.card = site, plan, site.target.card
        self.device_texts: list[ast.Constant | ast.JoinedStr] = []  # texts that name one card by its number
        self.numbered_moves: list[ast.Call] = []  # `.cuda(0)`
        self.device_settings: list[ast.stmt] = []  # `torch.cuda.set_device(0)`

    def collect_card_numbers(self) -> None:
        """Collect the expressions that name a card by its number; refuse one that cannot become the rank's card."""
        source = self.site.source
        for node in source.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NUMBERED_DEVICE.fullmatch(node.value):
                if not source.is_in_f_string(node):
                    self.device_texts.append(node)
            elif isinstance(node, ast.JoinedStr) and is_numbered_device(node):
                self.device_texts.append(node)
            elif isinstance(node, ast.Call):
                self.collect_from_call(node)

    def collect_from_call(self, call: ast.Call) -> None:
        """Collect a `set_device` and a `.cuda(0)`; refuse a block for one card, `with torch.cuda.device(0):`."""
        name = self.site.qualified_name(call.func) or ""
        if name in (f"torch.{root}.set_device" for root in DEVICE_TYPES):
            statement = self.site.source.statement_around(call)
            if not isinstance(statement, ast.Expr):
                raise Refused("set_device is part of another statement", "set_device 位于其他语句内", call)
            self.device_settings.append(statement)
        elif name in (f"torch.{root}.device" for root in DEVICE_TYPES):
            raise Refused("a block chooses a card by its number", "代码块按编号选择设备", call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in DEVICE_TYPES and call.args and not name:
            if not looks_like_card_number(call.args[0]):
                text = self.site.text_of(call.args[0])
                raise Refused(f"the code does not show which card {text} is", f"无法看出 {text} 是哪张卡", call)
            self.numbered_moves.append(call)

    def import_module(self, qualified: str, preferred: str) -> str:
        """Return the local name of a module; request its import if the file has none."""
        local = self.site.file.names.local_name(qualified)
        if local is None:
            local = self.site.reserve_name(preferred)
            self.site.file.request_import(local, qualified)
        return local

    def edit_script(self) -> None:
        self.dist = self.import_module("torch.distributed", "dist")
        self.local_rank = self.site.reserve_name("local_rank")
        self.parallel = self.site.file.import_name("torch.nn.parallel", "DistributedDataParallel")
        self.remove_card_numbers()
        for call in self.plan.wrapping_calls:
            self.wrap_model(call)
        self.rename_references()
        self.order_downloads()
        for loader in self.plan.loaders:
            self.shard_loader(loader)
        self.set_epochs()
        self.save_on_rank_0()
        self.wait_before_loading()
        self.accept_existing_folders()
        self.start_process_group()
        self.destroy_process_group()

    def remove_card_numbers(self) -> None:
        """Remove the numbers of cards: a device without a number is the current one, which is the rank's."""
        edit, source, device = self.site.edit, self.site.source, self.card.device
        for call in self.numbered_moves:
            edit.remove_items(source.argument_items(call), {0})
        for node in self.device_texts:
            if isinstance(node, ast.Constant):
                edit.replace_node(node, self.site.text_of(node).replace(str(node.value), device))
            else:
                edit.replace_node(node, f'"{device}"')
        for statement in self.device_settings:
            edit.remove_statement(statement)

    def wrap_model(self, call: ast.Call) -> None:
        model = wrapped_models.get_wrapped_model(call)
        assert model is not None
        text = self.site.text_of(model)
        is_moved = isinstance(model, ast.Call) and method_name(model) in MOVING_METHODS
        if not is_moved:
            text = f"{text if isinstance(model, NO_PARENTHESES) else f'({text})'}.{self.card.device}()"
        self.site.edit.replace_node(call, f"{self.parallel}({text}, device_ids=[{self.local_rank}])")

    def rename_references(self) -> None:
        """Replace DataParallel outside calls: `isinstance(model, nn.DataParallel)`."""
        for name in wrapped_models.DATA_PARALLEL:
            for node in self.site.file.index.references.get(name, []):
                if not self.site.source.is_in_f_string(node):
                    self.site.edit.replace_node(node, self.parallel)

    def order_downloads(self) -> None:
        """Let rank 0 run calls with download=True first; the other ranks wait and then find the files."""
        rank, unit, handled = f"{self.dist}.get_rank()", self.site.source.indent_unit, set()
        for call in self.site.source.nodes_of_type(ast.Call):
            statement = self.site.source.statement_around(call)
            is_download = is_constant(keyword_value(call, "download"), True)
            if not is_download or statement in handled or self.site.edit.own_indent(statement) is None:
                continue
            handled.add(statement)
            self.site.edit.insert_before(statement, [f"if {rank} != 0:", f"{unit}{self.dist}.barrier()"])
            self.site.edit.insert_after(statement, [f"if {rank} == 0:", f"{unit}{self.dist}.barrier()"])
            self.site.report_change(
                "rank 0 downloads first, the other ranks wait", zh="rank 0 先下载,其余 rank 等待", node=statement
            )

    def shard_loader(self, loader: Loader) -> None:
        """Give the training loader a DistributedSampler and its share of the batch."""
        site, dataset = self.site, self.site.text_of(loader.dataset)
        sampler = site.file.import_name("torch.utils.data", "DistributedSampler")
        if not isinstance(loader.dataset, ast.Name | ast.Attribute):
            variable = site.reserve_name("train_dataset")
            site.edit.insert_before(site.source.statement_around(loader.call), [f"{variable} = {dataset}"])
            site.edit.replace(*site.source.span(loader.dataset), variable)
            dataset = variable
        argument = f"sampler={sampler}({dataset}{'' if loader.is_shuffled else ', shuffle=False'})"
        if loader.shuffle is None:
            site.edit.add_argument(loader.call, argument)
        else:
            keyword = next((item for item in loader.call.keywords if item.value is loader.shuffle), None)
            site.edit.replace(*site.source.span(keyword or loader.shuffle), argument)
        if loader.batch_size is not None:
            size = site.text_of(loader.batch_size)
            size = size if isinstance(loader.batch_size, (*NO_PARENTHESES, ast.Constant)) else f"({size})"
            site.edit.replace(*site.source.span(loader.batch_size), f"{size} // {self.dist}.get_world_size()")
        site.report_change(
            "each rank reads its share of the samples; the batch of all ranks together stays the same if the number of "
            "ranks divides it",
            zh="各 rank 读取各自的样本;batch_size 能被 rank 数整除时全局 batch 不变",
            risk="medium",
            node=loader.call,
        )

    def set_epochs(self) -> None:
        """Insert calls of `set_epoch` at the beginning of every loop over epochs."""
        lines: dict[ast.For, dict[str, None]] = {}  # loop -> lines to insert, an ordered set
        for found in (found for loader in self.plan.loaders for found in loader.epoch_loops):
            lines.setdefault(found.loop, {})[f"{found.loader}.sampler.set_epoch({found.epoch})"] = None
        for loop, calls in lines.items():
            self.site.edit.insert_before(loop.body[0], [*calls])
            self.site.report_change(
                "set_epoch changes the order of the samples in every epoch",
                zh="set_epoch 使每个 epoch 顺序不同",
                node=loop.body[0],
            )

    def save_on_rank_0(self) -> None:
        """Let only rank 0 save: other ranks return at once from saving functions, and skip saving statements."""
        rank, unit = f"{self.dist}.get_rank()", self.site.source.indent_unit
        for function in self.plan.saving_functions:
            first = first_statement(function)
            self.site.edit.insert_before(first, [f"if {rank} != 0:", f"{unit}return"])
            self.site.report_change("only rank 0 saves", zh="仅 rank 0 保存", node=first)
        for statement in self.plan.saving_statements:
            self.indent(statement, f"if {rank} == 0:")
            self.site.report_change("only rank 0 saves", zh="仅 rank 0 保存", node=statement)

    def indent(self, statement: ast.stmt, header: str) -> None:
        """Put a statement under a header, such as an `if`: indent all its lines except those within a string."""
        source, edit = self.site.source, self.site.edit
        start, end = source.span(statement)
        edit.insert_before(statement, [header])
        in_strings = edit.lines_within_strings(start, end)
        for line in range(source.line_of(start), source.line_of(end) + 1):
            begin = source.line_starts[line - 1]
            if line not in in_strings and source.text[begin : source.line_stop(begin)].strip():
                edit.insert(begin, source.indent_unit)

    def wait_before_loading(self) -> None:
        """Insert a barrier before each torch.load that follows a training loop in its function: rank 0 saves first."""
        source = self.site.source
        epoch_loops = [found.loop for loader in self.plan.loaders for found in loader.epoch_loops]
        loops = {source.function_around(loop): loop for loop in epoch_loops}
        handled: set[ast.stmt] = set()
        for call in self.site.file.index.calls.get("torch.load", []):
            loop, statement = loops.get(source.function_around(call)), source.statement_around(call)
            if loop is None or call.lineno <= (loop.end_lineno or 0) or statement in handled:
                continue
            handled.add(statement)
            self.site.edit.insert_before(statement, [f"{self.dist}.barrier()"])
            self.site.report_change("all ranks wait until rank 0 has saved", zh="等待 rank 0 保存完成", node=statement)

    def accept_existing_folders(self) -> None:
        """Let calls of os.makedirs and os.mkdir accept a folder that another rank has created."""
        for call in calls_to(self.site, ["os.makedirs"]):
            if len(call.args) < 3 and not any(keyword.arg in (None, "exist_ok") for keyword in call.keywords):
                self.site.edit.add_argument(call, "exist_ok=True")
        for call in calls_to(self.site, ["os.mkdir"]):
            if isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords:
                self.site.edit.replace_attribute(call.func, "makedirs")
                self.site.edit.add_argument(call, "exist_ok=True")

    def start_process_group(self) -> None:
        """Insert lines that set the device and start the process group, before the first use of a card."""
        os_name = self.import_module("os", "os")
        torch = self.import_module("torch", "torch")
        lines = [
            f'{self.local_rank} = int({os_name}.environ["LOCAL_RANK"])',
            f"{torch}.{self.card.device}.set_device({self.local_rank})",
            f'{self.dist}.init_process_group("{self.card.backend}")',
        ]
        self.site.edit.insert_before(self.plan.first_card_use, lines)
        self.site.report_change(
            f"torchrun starts one process per card; the processes communicate over {self.card.backend}",
            zh=f"torchrun 为每张卡启动一个进程,各占一卡,通过 {self.card.backend} 通信",
            node=self.plan.first_card_use,
        )

    def destroy_process_group(self) -> None:
        """Insert a call at the end; in `sys.exit(main())` between the call of main and the exit."""
        last, line = self.plan.last_statement, f"{self.dist}.destroy_process_group()"
        value = get_exit_value(last)
        if value is None:
            self.site.edit.insert_after(last, [line])
            return
        status = self.site.reserve_name("status")
        self.site.edit.insert_before(last, [f"{status} = {self.site.text_of(value)}", line])
        self.site.edit.replace(*self.site.source.span(value), status)


def looks_like_card_number(value: ast.expr) -> bool:
    """Return True for an integer, and for an expression with "gpu", "device_ids" or "rank" in it."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int)
    return any(word in ast.unparse(value).lower() for word in ("gpu", "device_ids", "rank"))


def get_exit_value(statement: ast.stmt) -> ast.expr | None:
    """Return `main()` of `sys.exit(main())` or `raise SystemExit(main())`; None for any other statement."""
    value = statement.exc if isinstance(statement, ast.Raise) else getattr(statement, "value", None)
    if not isinstance(value, ast.Call) or not value.args:
        return None
    return value.args[0] if ast.unparse(value.func) in ("sys.exit", "exit", "SystemExit") else None


def is_numbered_device(text: ast.JoinedStr) -> bool:
    """Return True for `f"cuda:{index}"`."""
    prefix = text.values[0] if text.values else None
    return isinstance(prefix, ast.Constant) and prefix.value in ("cuda:", "npu:", "mlu:") and len(text.values) == 2
