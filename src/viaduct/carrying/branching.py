"""Where a script goes another way on another device: such lines did not take the same way in both rehearsals.

Read from the text of the original. The original ran on the CPU under CUDA's name, the migrated one under the card's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.rehearsal import project

ASKED = {"is_available", "device_count", "is_gpu_available", "is_built_with_cuda", "list_physical_devices", "is_cuda"}
DEVICES = {"cuda", "cpu", "npu", "mlu", "gpu", "/gpu:0", "/cpu:0"}


@dataclass(frozen=True)
class Branch:
    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def branches(script: Path, root: Path) -> list[Branch]:
    """Of the script, and of the files of its folder that it uses."""
    found = []
    for source in project.read(script).sources:
        lines = source.path.read_text(encoding="utf-8", errors="replace").splitlines()
        name = str(source.path.relative_to(root)) if source.path.is_relative_to(root) else source.path.name
        found += [Branch(name, line, lines[line - 1].strip()) for line in sorted(set(asking(source.tree)))]
    return found


def asking(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and any(map(asks, ast.walk(node.test))):
            yield node.test.lineno


def asks(node: ast.AST) -> bool:
    """`torch.cuda.is_available()`, `x.is_cuda`, `device.type == "cuda"`, `args.device != "cpu"`."""
    if isinstance(node, ast.Call):
        return project.last_word(node.func) in ASKED
    if isinstance(node, ast.Attribute):
        return node.attr == "is_cuda"
    if isinstance(node, ast.Compare):
        values = [one.value for one in (node.left, *node.comparators) if isinstance(one, ast.Constant)]
        return any(isinstance(value, str) and value.partition(":")[0].lower() in DEVICES for value in values)
    return False
