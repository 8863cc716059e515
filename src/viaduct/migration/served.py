"""Lines of a PyTorch file that are left alone: there the file already has code for the target, or for any device.

    if device.type == "cuda":            # left alone: the card has a branch of its own
        torch.cuda.synchronize()
    elif device.type == "npu":
        torch.npu.synchronize()

They are found in the original text: after the rules every branch would name the card. All other lines are migrated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from viaduct.cards import CARDS

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

CUDA = re.compile(r"(?<![A-Za-z])(?:cuda|CUDA|Cuda|gpu|GPU|nccl|NCCL)(?![a-z])|(?<=[a-z])C(?:UDA|uda)(?![a-z])")
CUDA_PARTS = ("uda", "UDA", "gpu", "GPU", "nccl", "NCCL")
"""One of them is in every text in which CUDA matches; looking for them is several times as fast."""
GENERIC = re.compile(r"torch\.accelerator\.|get_device_module\(|getattr\(torch, [\w.]*(?:device|type|dev)[\w.]*\)")
NEEDS_CUDA = re.compile(r"\w+\.cuda\.(\w+)\(")
HARMLESS = ("manual_seed", "manual_seed_all", "empty_cache")
"""Without CUDA these do nothing."""
TWINS = 50
"""So many branches for the target are looked through for a statement: a block that has more is generated."""
LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break
Simple = ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign


@lru_cache(maxsize=8)
def target_word(to: str) -> re.Pattern[str]:
    """Match `npu`, `is_npu_available`, `torch_npu`, `NPUAccelerator` and the backend; not `input`."""
    big, title, backend = to.upper(), to.title(), CARDS[to].backend
    return re.compile(
        rf"(?<![A-Za-z])(?:{to}|{title}|{backend})(?![a-z])|(?<![A-Za-z])(?:{big}|{backend.upper()})(?![A-Z]{{2}}\b)"
        rf"|(?<=[a-z])(?:{title}|{big})(?![a-z])"
    )


def find_served(work: Work) -> dict[int, int]:
    """Return the served lines, each with the line at which its place begins."""
    to, text = work.options.to, work.source.text
    if to not in CARDS or not any(fragment in text for fragment in CUDA_PARTS) or not CUDA.search(text):
        return {}
    found = Search(work)
    if target_word(to).search(text) or GENERIC.search(text) or "cuda" in PurePosixPath(work.path).stem.lower():
        found.run()
    return found.lines


class Search:
    """Looks for places that have a branch, an entry or a function for each card."""

    def __init__(self, work: Work) -> None:
        self.work, self.source = work, work.source
        self.word = target_word(work.options.to)
        self.to = work.options.to
        self.lines: dict[int, int] = {}

    def run(self) -> None:
        """Look at every node of the file."""
        if self.has_twin_file():
            self.serve(self.source.tree.body, self.source.tree.body[0])
            return
        for node in self.source.nodes:
            if isinstance(node, ast.If):
                self.look_at_branches(node)
            elif isinstance(node, ast.IfExp | ast.BoolOp | ast.Dict | ast.List | ast.Tuple | ast.Set):
                self.look_at_expression(node)
            elif isinstance(node, ast.Match):
                self.look_at_cases(node)
            elif isinstance(node, ast.Try):
                self.look_at_attempt(node)
            for block in blocks_of(node):
                self.look_at_block(block)

    # ---- noting

    def serve(self, nodes: Sequence[ast.stmt | ast.expr | ast.pattern], place: ast.AST) -> None:
        """Record the lines of nodes as served by the place."""
        for node in nodes:
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                self.lines.setdefault(line, place.lineno)  # type: ignore[attr-defined]

    # ---- asking

    def text(self, node: ast.AST) -> str:
        return self.source.text_of(node)

    def is_for_target(self, node: ast.AST) -> bool:
        """Return True if an expression speaks of the target: in names, attributes or whole texts."""
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=text) | ast.Attribute(attr=text) | ast.Constant(value=str(text)):
                    if self.word.search(text):
                        return True
        return False

    @staticmethod
    def is_for_cuda(node: ast.AST) -> bool:
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=text) | ast.Attribute(attr=text) | ast.Constant(value=str(text)):
                    if CUDA.search(text):
                        return True
        return False

    def as_cuda(self, text: str) -> str:
        """Return a text with the target's name replaced by CUDA's, to be compared with code for CUDA."""
        pairs = ((self.to, "cuda"), (self.to.upper(), "CUDA"), (self.to.title(), "Cuda"))
        for old, new in pairs:
            text = re.sub(rf"(?<![a-z]){old}(?![a-z])" if old.islower() else old, new, text)
        return text.replace(CARDS[self.to].backend, "nccl")

    def has_twin_file(self) -> bool:
        """Return True if the project has the same file for the target: `cuda_accelerator.py`, `npu_accelerator.py`."""
        path = PurePosixPath(self.work.path)
        if "cuda" not in path.stem.lower() or self.word.search(path.stem):
            return False
        twin = str(path.with_name(path.name.replace("cuda", self.to).replace("CUDA", self.to.upper())))
        return twin != str(path) and twin in self.work.project.frameworks and bool(self.source.tree.body)

    # ---- places

    def look_at_branches(self, node: ast.If) -> None:
        """Serve the branches for CUDA of an `if` chain in which one branch is the target's, or the last is generic."""
        if self.is_for_target(node.test):
            negated = is_negated(node.test)
            others = node.body if negated else node.orelse
            if others or self.is_for_cuda(node.test):
                self.serve([node.test], node)
            if self.is_for_cuda_anywhere(others):
                self.serve(others, node)
        elif self.is_for_cuda(node.test) and self.else_serves(node):
            self.serve([node.test], node)
            self.serve(node.body, node)

    def else_serves(self, node: ast.If) -> bool:
        """Return True if a later branch is the target's, or the last one works on whatever device there is."""
        orelse = node.orelse
        while len(orelse) == 1 and isinstance(orelse[0], ast.If):
            inner = orelse[0]
            if self.is_for_target(inner.test) and not is_negated(inner.test):
                return True
            orelse = inner.orelse
        return bool(orelse) and any(GENERIC.search(ast.unparse(statement)) for statement in orelse)

    def is_for_cuda_anywhere(self, statements: list[ast.stmt]) -> bool:
        return any(self.is_for_cuda(statement) for statement in statements)

    def look_at_expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Dict):
            kinds = [[key for key in node.keys if key is not None]]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            kinds = [node.elts]
        elif isinstance(node, ast.IfExp):
            if self.chooses_card(node):
                self.serve([node], node)
            return
        else:
            either = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
            asked = node.values if isinstance(node, ast.BoolOp) and either else []
            if any(map(self.is_for_target, asked)) and any(map(self.is_for_cuda, asked)):
                self.serve([node], node)
            return
        for entries in kinds:
            texts = {
                entrie.value for entrie in entries if isinstance(entrie, ast.Constant) and isinstance(entrie.value, str)
            }
            roots = {text.partition(":")[0] for text in texts}
            if {"cuda", self.to} <= roots or {"nccl", CARDS[self.to].backend} <= texts:
                self.serve([self.option_around(node)], node)

    def chooses_card(self, node: ast.IfExp) -> bool:
        """`"npu" if is_npu() else "cuda"`, or CUDA first; not `"cuda" if torch.npu.is_available() else "cpu"`."""
        if self.is_for_target(node.test):
            sides = (node.orelse, node.body) if is_negated(node.test) else (node.body, node.orelse)
            return self.is_for_cuda(sides[1]) and not self.is_for_cuda(sides[0])
        return self.is_for_cuda(node) and self.is_for_target(node.orelse)

    def option_around(self, node: ast.expr) -> ast.expr:
        """Return the add_argument call around a list of choices, so that its default is served too; else the node."""
        for parent in self.source.ancestors(node):
            if isinstance(parent, ast.Call) and "add_argument" in ast.unparse(parent.func):
                return parent
            if isinstance(parent, ast.stmt):
                break
        return node

    def look_at_cases(self, node: ast.Match) -> None:
        patterns = {case: self.text(case.pattern) for case in node.cases}
        if any(self.word.search(text) for text in patterns.values()):
            for case, text in patterns.items():
                if not self.word.search(text):
                    self.serve([case.pattern], node)
                    self.serve(case.body, node)

    def look_at_attempt(self, node: ast.Try) -> None:
        """`try: import torch_npu … except ImportError: torch.cuda…`."""
        handlers = [statement for handler in node.handlers for statement in handler.body]
        tries = any(isinstance(line, Simple) and self.is_for_target(line) for line in node.body)
        if tries and self.is_for_cuda_anywhere(handlers):
            self.serve(handlers, node)

    def look_at_block(self, block: list[ast.stmt]) -> None:
        """Serve statements for CUDA beside the same for the target, and those behind a target's branch that returns."""
        aimed = [line for line in block if self.concerns_target(line)]
        if not aimed:
            return
        twins = {self.as_cuda(ast.unparse(item)) for item in aimed}
        within = [twin for twin in twins if twin.startswith("if ")][:TWINS]
        for statement in block:
            if statement in aimed or not self.is_for_cuda(statement):
                continue
            if self.has_twin(statement, twins, within):
                self.serve([statement], statement)
        for index, statement in enumerate(block):
            leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], LEAVES)
            if isinstance(statement, ast.If) and leaves and statement in aimed and not is_negated(statement.test):
                remainder = [candidate for candidate in block[index + 1 :] if self.is_for_cuda(candidate)]
                if self.is_for_target(statement.test) and not isinstance(statement.body[-1], ast.Raise):
                    self.serve(remainder, statement)

    def concerns_target(self, statement: ast.stmt) -> bool:
        """Return True for a branch, a definition or a simple statement for the target only."""
        if isinstance(statement, ast.If):
            return self.is_for_target(statement.test)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self.word.search(statement.name) is not None
        return isinstance(statement, Simple) and self.is_for_target(statement) and not self.is_for_cuda(statement)

    def has_twin(self, statement: ast.stmt, twins: set[str], within: list[str]) -> bool:
        """Return True for a definition or a statement that is also there for the target, or in a branch for it."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(statement, ast.ClassDef) else "def"
            heads = [re.search(rf"\b{kind} (\w+)", twin) for twin in twins]
            return any(head is not None and head[1] == statement.name for head in heads)
        wanted = ast.unparse(statement.test) if isinstance(statement, ast.If) else ast.unparse(statement)
        if isinstance(statement, ast.Expr) and needs_cuda(wanted):
            return False
        return isinstance(statement, ast.If | Simple) and (wanted in twins or any(wanted in twin for twin in within))


def needs_cuda(text: str) -> bool:
    """Return True for a call that fails without CUDA: beside the target's, with no condition, it was forgotten."""
    called = NEEDS_CUDA.match(text)
    return called is not None and called[1] not in HARMLESS


def is_negated(test: ast.expr) -> bool:
    """`not is_npu()`, `device.type != "npu"`."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn | ast.IsNot)


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a node."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and len(block) > 1:
            yield block
