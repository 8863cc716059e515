"""Finds the source files that spell a text out."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import viaduct

SOURCE = Path(viaduct.__file__).parent
COPIED = "migration/accelerator_device.py"  # is copied into migrated projects and can import nothing
STAND_IN = "rehearsal/tf1_stage/site/"  # is the package of that name


def spelled_in(text: str) -> set[str]:
    """Return the source files with a string constant that is exactly this text."""
    return {path for path in files_by_constant()[text] if path != COPIED and not path.startswith(STAND_IN)}


@cache
def files_by_constant() -> dict[str, set[str]]:
    """Return the source files of each string constant."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                files[node.value].add(path.relative_to(SOURCE).as_posix())
    return files
