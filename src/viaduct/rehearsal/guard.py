"""Keeps a rehearsed script from writing through the mirror's links into what is the user's own.

What is too large to be copied is linked, for reading. Python tells a hook of every file that it opens, removes or
renames; one that lies behind such a link is refused with a PermissionError that names it. What is written without
Python (C++, another program) cannot be refused so: `scene.py` compares afterwards. A full path that the user has given
to the script is the user's own wish.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from viaduct.rehearsal.plan import Plan

FILE = "links.json"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
FOLLOWED = {"os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"}
ENTRIES = {"os.remove", "os.rmdir", "os.mkdir", "os.rename", "os.link", "os.symlink"}  # the name itself, not its aim
BOTH = {"os.rename"}  # the first name goes, the second comes
SECOND = {"os.link", "os.symlink"}


def save(record: str, originals: Iterable[str]) -> None:
    """For every process of the rehearsal."""
    (Path(record) / FILE).write_text(json.dumps(sorted(originals)), encoding="utf-8")


def install(plan: Plan) -> None:
    """In this process and those that it forks; nothing where nothing is linked."""
    path = Path(plan.record) / FILE
    originals = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if not originals:
        return
    given = [word.partition("=")[2] or word for word in plan.arguments]
    guard = Guard(originals, [*filter(os.path.isabs, given), plan.record])
    sys.addaudithook(guard.hear)


class Guard:
    """`originals`: files and folders that links lead to; `allowed`: where the user wants to have things written."""

    def __init__(self, originals: Iterable[str], allowed: Iterable[str]) -> None:
        self.originals = tuple(map(os.path.realpath, originals))
        self.allowed = tuple(map(os.path.realpath, allowed))

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & WRITES:
                self.refuse(args[0])
        elif event in FOLLOWED:
            self.refuse(args[0])
        elif event in ENTRIES:
            for path in args[:2] if event in BOTH else args[1:2] if event in SECOND else args[:1]:
                if not (event == "os.mkdir" and os.path.lexists(path)):  # that fails by itself, and may be meant to
                    self.refuse(path, entry=True)

    def refuse(self, path: Any, entry: bool = False) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):  # a number: it was opened before
            return
        name = os.fsdecode(path)
        folder, last = os.path.split(name)
        real = os.path.join(os.path.realpath(folder or "."), last) if entry else os.path.realpath(name)
        if within(real, self.originals) and not within(real, self.allowed):
            why = f"this is your own {real}, too large to be copied for a rehearsal, and is only read"
            raise PermissionError(errno.EACCES, f"{why}; let the script write elsewhere, or rehearse with --here", name)


def within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def watch_torch_save() -> None:
    """torch writes its archives in C++, of which no hook hears; so the name is opened for it to be heard."""
    import torch

    plain = torch.save

    @functools.wraps(plain)
    def save_checked(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", os.fspath(f), "w", os.O_WRONLY)
        return plain(obj, f, *args, **kwargs)

    torch.save = save_checked
