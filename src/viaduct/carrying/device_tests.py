"""Conditions of the original that test the device: on the card, the script may take another branch than on the CPU.

They are conditions of `if`, `while` and conditional expressions that contain a device query or the name of a device.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.migration.source import lines_of
from viaduct.rehearsal import counters, project
from viaduct.scripts.notebook_runs import is_notebook, locate_line, read_source

DEVICE_FUNCTIONS = {  # the last parts of their names
    "is_available", "device_count", "is_gpu_available", "is_built_with_cuda", "list_physical_devices", "is_cuda",
}  # fmt: skip
DEVICES = {"cuda", "cpu", "npu", "mlu", "gpu", "/gpu", "/cpu"}  # the part before the colon of "cuda:0" or "/gpu:0"


@dataclass(frozen=True)
class DeviceTest:
    """A line that tests the device."""

    file: str
    line: int  # in a notebook: of all code cells in order
    text: str
    cell: str = ""  # in a notebook: the cell and the line within it

    @property
    def place(self) -> str:
        """Return FILE:LINE, or the file and the notebook's cell."""
        return f"{self.file} {self.cell}" if self.cell else f"{self.file}:{self.line}"


def list_device_tests(script: Path, root: Path) -> list[DeviceTest]:
    """Return the lines of the script, and of the project files that it imports, that test the device."""
    tests = []
    for source in project.read_project(script).sources:
        lines = lines_of(counters.decode(read_source(source.path, source.path.read_bytes())))
        name = str(source.path.relative_to(root)) if source.path.is_relative_to(root) else source.path.name
        for number in sorted(set(find_device_tests(source.tree))):
            place = locate_line(source.path, number)
            cell = place.removeprefix(f"{source.path} ") if is_notebook(source.path) else ""
            tests.append(DeviceTest(name, number, lines[number - 1].strip(), cell))
    return tests


def find_device_tests(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers of the lines in which a condition that tests the device begins."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and any(map(is_device_test, ast.walk(node.test))):
            yield node.test.lineno


def is_device_test(node: ast.AST) -> bool:
    """Return True for `torch.cuda.is_available()`, `x.is_cuda`, `device.type == "cuda"`, `args.device != "cpu"`."""
    if isinstance(node, ast.Call):
        return project.get_unqualified_name(node.func) in DEVICE_FUNCTIONS
    if isinstance(node, ast.Attribute):
        return node.attr == "is_cuda"
    if isinstance(node, ast.Compare):
        values = [side.value for side in (node.left, *node.comparators) if isinstance(side, ast.Constant)]
        return any(isinstance(value, str) and value.partition(":")[0].lower() in DEVICES for value in values)
    return False
