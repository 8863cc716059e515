"""Runs commands of viaduct in one process that can import none of the packages of viaduct's extras.

    python without_torch.py FOLDER COMMANDS.json       prints a JSON list: exit code, stdout, stderr of each command

The packages may be installed: importing them fails as if they were not. tests/test_wheel.py does the same with an
environment that really lacks them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

BLOCKED = {"torch", "torchvision", "tensorflow", "tensorboard", "simplejpeg"}


class Without:
    """An import finder that finds what another one does, but for the blocked packages."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in BLOCKED:
            return None
        found: ModuleSpec | None = self.finder.find_spec(name, path, target)
        return found

    def find_distributions(self, context: Any) -> Iterable[Any]:
        if (context.name or "").replace("-", "_") in BLOCKED:
            return ()
        found: Iterable[Any] = getattr(self.finder, "find_distributions", lambda context: ())(context)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def block() -> list[Any]:
    """Return import finders for sys.meta_path that do not find the blocked packages."""
    return [Without(finder) for finder in sys.meta_path]


def answer(words: list[str]) -> tuple[int, str, str]:
    from viaduct.cli import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code = 0
    sys.argv = ["viaduct", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
    return code, text_of(out), text_of(err)


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return content.decode()


if __name__ == "__main__":
    sys.meta_path[:] = block()
    commands = json.loads(Path(sys.argv[2]).read_text())
    os.chdir(sys.argv[1])
    print(json.dumps([answer(words) for words in commands]))
