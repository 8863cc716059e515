"""The quick part of the suite (`make quick`): tests that start no process, need no TensorFlow and take little time.

A module is out if it imports what starts processes, or TensorFlow, itself or through a helper of ours: there is no list
to keep. In what is left starting a process is an error, in every run of the suite. A single test that must start some
is marked `process`; one that takes seconds is marked `lengthy`, and `make quick` says which. Tests on a card are out,
because Triton starts a compiler.
"""

from __future__ import annotations

import ast
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

TESTS = Path(__file__).parent
HEAVY = ("subprocess", "multiprocessing", "forked_viaduct", "tensorflow")
STARTERS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")
LIMIT_S = 4.0  # of processor time


@cache
def heavy_import(path: Path) -> str | None:
    """Return what keeps a test module out of the quick part; None if nothing does."""
    for name in imported_names(path):
        if name.partition(".")[0] in HEAVY:
            return name
        helper = TESTS / f"{name.removeprefix('tests.').replace('.', '/')}.py"
        if helper not in (path, Path(__file__)) and helper.is_file() and (reason := heavy_import(helper)):
            return f"{name}, which imports {reason}"
    return None


def imported_names(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, at any depth; `from a import b` may mean a.b, `.a` is beside it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            folders = path.relative_to(TESTS).parent.parts if node.level else ()
            module = ".".join([*folders[: len(folders) - max(node.level, 1) + 1], node.module])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_quick(item: pytest.Item) -> bool:
    return heavy_import(item.path) is None and not any(map(item.get_closest_marker, ("process", "lengthy", "gpu")))


def forbid_processes(patch: pytest.MonkeyPatch) -> None:
    """Let every start of a process fail the test."""
    platform.processor()  # asks `uname`, once: h5py does so when it is imported
    import numpy.testing  # noqa: F401  # asks `lscpu` when it is first imported

    def refuse(*arguments: object, **options: object) -> NoReturn:
        pytest.fail("this test is in the quick part and starts a process: mark it with @pytest.mark.process")

    patch.setattr(subprocess.Popen, "__init__", refuse)
    for name in STARTERS:
        patch.setattr(os, name, refuse)
