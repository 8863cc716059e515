"""Find lines of a PyTorch file that rules leave alone because the file already has code for the target or any device.

    if device.type == "cuda":            # left alone: the card has its own branch
        torch.cuda.synchronize()
    elif device.type == "npu":
        torch.npu.synchronize()

The search uses the original text; after the rules every branch would name the card.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from viaduct.cards import CARDS
from viaduct.migration.source import FunctionNode

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

CUDA = re.compile(r"(?<![A-Za-z])(?:cuda|CUDA|Cuda|gpu|GPU|nccl|NCCL)(?![a-z])|(?<=[a-z])C(?:UDA|uda)(?![a-z])")
CUDA_PARTS = ("uda", "UDA", "gpu", "GPU", "nccl", "NCCL")
"""Every text that matches the pattern CUDA contains one of these; searching for them first is faster."""
DEVICE_NEUTRAL = re.compile(
    r"torch\.accelerator\.|get_device_module\(|getattr\(torch, [\w.]*(?:device|type|dev)[\w.]*\)"
)
CUDA_CALL = re.compile(r"\w+\.cuda\.(\w+)\(")
NO_OPS_WITHOUT_CUDA = ("manual_seed", "manual_seed_all", "empty_cache")
"""Functions of torch.cuda that do nothing without CUDA."""
MAX_TARGET_BRANCHES = 50
"""Maximum number of branches for the target that are searched for a statement; more exist only in generated code."""
SimpleStatement = ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign
Definition = FunctionNode | ast.ClassDef


@lru_cache(maxsize=8)
def compile_target_pattern(to: str) -> re.Pattern[str]:
    """Return a pattern that for "npu" matches `npu`, `is_npu_available`, `NPUAccelerator` and `hccl`; not `input`."""
    upper, title, backend = to.upper(), to.title(), CARDS[to].backend
    return re.compile(
        rf"(?<![A-Za-z])(?:{to}|{title}|{backend})(?![a-z])|(?<![A-Za-z])(?:{upper}|{backend.upper()})(?![A-Z]{{2}}\b)"
        rf"|(?<=[a-z])(?:{title}|{upper})(?![a-z])"
    )


def find_target_code(file: MigratedFile) -> dict[int, int]:
    """Return each line that rules leave alone -> first line of the construct that already handles the target."""
    to, text = file.options.to, file.source.text
    if to not in CARDS or not any(fragment in text for fragment in CUDA_PARTS) or not CUDA.search(text):
        return {}
    search = Search(file)
    if (
        compile_target_pattern(to).search(text)
        or DEVICE_NEUTRAL.search(text)
        or "cuda" in PurePosixPath(file.path).stem.lower()
    ):
        search.run()
    return search.lines


class Search:
    """Search for constructs that have a branch, an entry or a function for CUDA and one for the target."""

    def __init__(self, file: MigratedFile) -> None:
        self.file, self.source = file, file.source
        self.pattern = compile_target_pattern(file.options.to)
        self.to = file.options.to
        self.lines: dict[int, int] = {}

    def run(self) -> None:
        if self.has_twin_file():
            self.leave_alone(self.source.tree.body, self.source.tree.body[0])
            return
        for node in self.source.nodes:
            if isinstance(node, ast.If):
                self.check_if(node)
            elif isinstance(node, ast.IfExp | ast.BoolOp | ast.Dict | ast.List | ast.Tuple | ast.Set):
                self.check_expression(node)
            elif isinstance(node, ast.Match):
                self.check_match(node)
            elif isinstance(node, ast.Try):
                self.check_try(node)
            for block in iterate_blocks(node):
                self.check_block(block)

    def leave_alone(self, nodes: Sequence[ast.stmt | ast.expr | ast.pattern], construct: ast.AST) -> None:
        """Record the lines of `nodes`, because `construct` already handles the target."""
        for node in nodes:
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                self.lines.setdefault(line, construct.lineno)  # type: ignore[attr-defined]

    def is_for_target(self, node: ast.AST) -> bool:
        """Return True if a name, an attribute or a string within the node contains the target's name."""
        return is_matching(node, self.pattern)

    @staticmethod
    def is_for_cuda(node: ast.AST) -> bool:
        """Return True if a name, an attribute or a string within the node contains CUDA's name."""
        return is_matching(node, CUDA)

    def replace_target_by_cuda(self, text: str) -> str:
        """Replace the target's name by CUDA's, so that the text can be compared with code for CUDA."""
        pairs = ((self.to, "cuda"), (self.to.upper(), "CUDA"), (self.to.title(), "Cuda"))
        for old, new in pairs:
            text = re.sub(rf"(?<![a-z]){old}(?![a-z])" if old.islower() else old, new, text)
        return text.replace(CARDS[self.to].backend, "nccl")

    def has_twin_file(self) -> bool:
        """Return True if the project has this file for the target too: `cuda_accelerator.py`, `npu_accelerator.py`."""
        path = PurePosixPath(self.file.path)
        if "cuda" not in path.stem.lower() or self.pattern.search(path.stem):
            return False
        twin = str(path.with_name(path.name.replace("cuda", self.to).replace("CUDA", self.to.upper())))
        return twin != str(path) and twin in self.file.project.frameworks and bool(self.source.tree.body)

    def check_if(self, node: ast.If) -> None:
        """Leave CUDA's branches of an `if` chain alone if another branch is for the target or for any device."""
        if self.is_for_target(node.test):
            is_negative = is_negated(node.test)
            other_branch = node.body if is_negative else node.orelse
            if other_branch or self.is_for_cuda(node.test):
                self.leave_alone([node.test], node)
            if self.is_for_cuda_anywhere(other_branch):
                self.leave_alone(other_branch, node)
        elif self.is_for_cuda(node.test) and self.has_branch_for_target(node):
            self.leave_alone([node.test], node)
            self.leave_alone(node.body, node)

    def has_branch_for_target(self, node: ast.If) -> bool:
        """Return True if a later branch is for the target, or the last one has device-neutral code."""
        orelse = node.orelse
        while len(orelse) == 1 and isinstance(orelse[0], ast.If):
            branch = orelse[0]
            if self.is_for_target(branch.test) and not is_negated(branch.test):
                return True
            orelse = branch.orelse
        return bool(orelse) and any(DEVICE_NEUTRAL.search(ast.unparse(statement)) for statement in orelse)

    def is_for_cuda_anywhere(self, statements: list[ast.stmt]) -> bool:
        return any(self.is_for_cuda(statement) for statement in statements)

    def check_expression(self, node: ast.expr) -> None:
        """Leave alone the lines of an `or`, a conditional expression, a list or a dict with CUDA and the target."""
        if isinstance(node, ast.IfExp):
            if self.chooses_card(node):
                self.leave_alone([node], node)
            return
        if isinstance(node, ast.BoolOp):
            operands = node.values if isinstance(node.op, ast.Or) else []
            if any(map(self.is_for_target, operands)) and any(map(self.is_for_cuda, operands)):
                self.leave_alone([node], node)
            return
        entries = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        texts = {entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)}
        device_types = {text.partition(":")[0] for text in texts}
        if {"cuda", self.to} <= device_types or {"nccl", CARDS[self.to].backend} <= texts:
            self.leave_alone([self.find_option_around(node)], node)

    def chooses_card(self, node: ast.IfExp) -> bool:
        """Return True for `"npu" if is_npu() else "cuda"` and for `"cuda" if is_cuda() else "npu"`.

        Return False for `"cuda" if torch.npu.is_available() else "cpu"`, which rules must migrate.
        """
        if self.is_for_target(node.test):
            on_target, otherwise = (node.orelse, node.body) if is_negated(node.test) else (node.body, node.orelse)
            return self.is_for_cuda(otherwise) and not self.is_for_cuda(on_target)
        return self.is_for_cuda(node) and self.is_for_target(node.orelse)

    def find_option_around(self, node: ast.expr) -> ast.expr:
        """Return the add_argument call around a list of choices; without one the list itself."""
        for parent in self.source.ancestors(node):
            if isinstance(parent, ast.Call) and "add_argument" in ast.unparse(parent.func):
                return parent
            if isinstance(parent, ast.stmt):
                break
        return node

    def check_match(self, node: ast.Match) -> None:
        """Leave the other cases alone if one is for the target."""
        patterns = {case: self.source.text_of(case.pattern) for case in node.cases}
        if any(self.pattern.search(text) for text in patterns.values()):
            for case, text in patterns.items():
                if not self.pattern.search(text):
                    self.leave_alone([case.pattern], node)
                    self.leave_alone(case.body, node)

    def check_try(self, node: ast.Try) -> None:
        """Leave alone the handlers of `try: torch.npu.set_device(0) … except …: torch.cuda.set_device(0)`."""
        handlers = [statement for handler in node.handlers for statement in handler.body]
        tries_target = any(
            isinstance(statement, SimpleStatement) and self.is_for_target(statement) for statement in node.body
        )
        if tries_target and self.is_for_cuda_anywhere(handlers):
            self.leave_alone(handlers, node)

    def check_block(self, block: list[ast.stmt]) -> None:
        """Leave alone statements for CUDA that have a twin for the target, or follow an early return for the target."""
        for_target = [statement for statement in block if self.concerns_target(statement)]
        if not for_target:
            return
        twins = {self.replace_target_by_cuda(ast.unparse(statement)) for statement in for_target}
        branches = [twin for twin in twins if twin.startswith("if ")][:MAX_TARGET_BRANCHES]
        for statement in block:
            is_for_cuda = statement not in for_target and self.is_for_cuda(statement)
            if is_for_cuda and self.has_twin(statement, twins, branches):
                self.leave_alone([statement], statement)
        for index, statement in enumerate(block):
            if isinstance(statement, ast.If) and statement in for_target and not is_negated(statement.test):
                returns_early = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
                following = [later for later in block[index + 1 :] if returns_early and self.is_for_cuda(later)]
                self.leave_alone(following, statement)

    def concerns_target(self, statement: ast.stmt) -> bool:
        """Return True for an `if` on the target, a definition named after it, or a statement for it without CUDA."""
        if isinstance(statement, ast.If):
            return self.is_for_target(statement.test)
        if isinstance(statement, Definition):
            return self.pattern.search(statement.name) is not None
        return (
            isinstance(statement, SimpleStatement) and self.is_for_target(statement) and not self.is_for_cuda(statement)
        )

    def has_twin(self, statement: ast.stmt, twins: set[str], branches: list[str]) -> bool:
        """Return True if a statement for CUDA also exists for the target.

        `twins`: the code of statements for the target, with its name replaced by CUDA's; `branches`: the `if`s of them.
        A simple statement, or the condition of an `if`, may also occur in one of the branches.
        """
        if isinstance(statement, Definition):
            kind = "class" if isinstance(statement, ast.ClassDef) else "def"
            headers = [re.search(rf"\b{kind} (\w+)", twin) for twin in twins]
            return any(header is not None and header[1] == statement.name for header in headers)
        if isinstance(statement, ast.If):
            condition = re.compile(rf"(?<![\w.]){re.escape(ast.unparse(statement.test))}(?![\w.(\[])")
            return any(condition.search(branch) for branch in branches)
        if not isinstance(statement, SimpleStatement):
            return False
        text = ast.unparse(statement)
        if isinstance(statement, ast.Expr) and needs_cuda(text):
            return False
        return text in twins or any(text in map(str.strip, branch.splitlines()) for branch in branches)


def is_matching(node: ast.AST, pattern: re.Pattern[str]) -> bool:
    """Return True if a pattern matches in a name, an attribute or a string within the node."""
    for descendant in ast.walk(node):
        match descendant:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.Constant(value=str(text)):
                if pattern.search(text):
                    return True
    return False


def needs_cuda(text: str) -> bool:
    """Return True for a call that may fail without CUDA, so it must be migrated even if it has a twin."""
    called = CUDA_CALL.match(text)
    return called is not None and called[1] not in NO_OPS_WITHOUT_CUDA


def is_negated(test: ast.expr) -> bool:
    """Return True for `not is_npu()` and `device.type != "npu"`."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn | ast.IsNot)


def iterate_blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a node that have at least two statements."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and len(block) > 1:
            yield block
