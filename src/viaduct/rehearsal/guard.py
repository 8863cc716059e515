"""Guard: keeps a rehearsed script from writing through the mirror's links into the user's files.

Python calls an audit hook before it opens, removes or renames a file. If a link of the mirror is in the path, it is
first replaced by a copy of the file, or by a folder of links. Writes without Python (C++, another program) do not call
the hook: `mirror.py` compares afterwards. Writing to a full path in the user's own folders is refused, unless the user
has given that path to the script as an argument.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from viaduct.rehearsal.plan import Plan

FILE = "links.json"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
# Audit events whose first argument is: a file that changes; …
CHANGED = {"os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "sqlite3.connect"}
ENTRIES = {"os.remove", "os.mkdir", "os.rename", "os.link", "os.symlink"}  # a name that comes or goes, not its target;
BOTH = {"os.rename"}  # of these both arguments are such names,
SECOND = {"os.link", "os.symlink"}  # and of these the second;
FOLDERS = {"os.rmdir", "os.chdir", "shutil.rmtree"}  # a folder that is removed or entered;
LISTED = {"os.scandir", "os.listdir"}  # a folder whose entries are listed.
TEMPORARY = ".viaduct-copy"
LINKS = 40  # followed in one path, as the kernel does
# What happens to the last part of a path: the name itself comes or goes, its content changes, it is emptied first, or
# it is used as a folder.
Last = Literal["entry", "content", "empty", "folder"]


def save(record: str, owned: Iterable[str]) -> None:
    """Write the list of the user's files and folders for all processes of the rehearsal."""
    (Path(record) / FILE).write_text(json.dumps(sorted({path for path in owned if path})), encoding="utf-8")


def install(plan: Plan) -> None:
    """Install the audit hook in this process and its forks, where the script runs in a mirror."""
    path = Path(plan.record) / FILE
    if plan.view != "mirror" or not path.exists():
        return
    given = [argument.partition("=")[2] or argument for argument in plan.arguments]
    owned = json.loads(path.read_text(encoding="utf-8"))
    allowed = [*filter(os.path.isabs, given), plan.record]
    sys.addaudithook(Guard(str(Path(plan.record) / "mirror"), owned, allowed).audit)


def move_arguments(plan: Plan) -> tuple[str, ...]:
    """Return the script's arguments; in a mirror, full paths into the project or the working folder lead there."""
    if plan.view != "mirror":
        return plan.arguments
    own = (plan.origin, plan.replaces or plan.tree or plan.project)
    moved = []
    for argument in plan.arguments:
        name, equals, value = argument.partition("=")
        path = value if equals else argument
        path = f"{plan.record}/mirror{path}" if os.path.isabs(path) and is_within(os.path.normpath(path), own) else path
        moved.append(f"{name}={path}" if equals else path)
    return tuple(moved)


class Guard:
    """Audit hook for one mirror. `owned` are the user's paths, `allowed` those to which the script may write
    directly."""

    def __init__(self, mirror: str, owned: Iterable[str], allowed: Iterable[str]) -> None:
        self.mirror = os.path.realpath(mirror)
        self.owned = tuple(map(os.path.realpath, owned))
        self.allowed = tuple(map(os.path.realpath, allowed))
        self._state = threading.local()

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event of Python."""
        if getattr(self._state, "busy", False):
            return
        self._state.busy = True
        try:
            self.prepare(event, args)
        finally:
            self._state.busy = False

    def prepare(self, event: str, args: tuple[Any, ...]) -> None:
        """Replace links or refuse, according to the event."""
        if event == "open":
            if isinstance(args[2], int) and args[2] & WRITES:
                self.replace_links(args[0], "empty" if args[2] & os.O_TRUNC else "content")
        elif event in CHANGED:
            self.replace_links(args[0], "content")
        elif event in ENTRIES:
            for path in args[:2] if event in BOTH else args[1:2] if event in SECOND else args[:1]:
                if not (event == "os.mkdir" and os.path.lexists(path)):  # FileExistsError comes by itself
                    self.replace_links(path, "entry")
        elif event in FOLDERS:
            self.replace_links(args[0], "folder", refuse=event != "os.chdir")
        elif event in LISTED:
            self.list_folder(args[0])
        elif event == "subprocess.Popen" and args[2] is not None:
            self.replace_links(args[2], "folder", refuse=False)

    def replace_links(self, path: Any, last: Last, refuse: bool = True) -> None:
        """Replace links along a path by files and folders of the mirror; raise PermissionError for the user's own
        path."""
        if not isinstance(path, (str, bytes, os.PathLike)):  # a descriptor: it was opened before
            return
        name = os.fsdecode(path)
        real = self.walk(os.path.join(os.getcwd(), name), last)
        if refuse and is_within(real, self.owned) and not is_within(real, (*self.allowed, self.mirror)):
            why = f"this is your own {real}, and a rehearsal in a mirror only reads it by its full path"
            raise PermissionError(
                errno.EACCES, f"{why}; give the script a relative path, or rehearse with --here", name
            )

    def walk(self, path: str, last: Last) -> str:
        """Replace links of the mirror along a path, follow all others, and return the real path."""
        waiting, here, links = path.split(os.sep), os.sep, 0
        while waiting:
            name = waiting.pop(0)
            if name in ("", ".", ".."):
                here = os.path.dirname(here) if name == ".." else here
                continue
            step = os.path.join(here, name)
            if not os.path.islink(step) or (not any(waiting) and last == "entry"):
                here = step
                continue
            aim = os.path.join(here, os.readlink(step))
            if is_within(step, [self.mirror]) and not is_within(aim, [self.mirror]) and os.path.exists(aim):
                self.replace_link(step, aim, "empty" if last == "empty" and not any(waiting) else "content")
                here = step
                continue
            links += 1
            if links > LINKS:
                return step
            waiting, here = [*aim.split(os.sep), *waiting], os.sep
        return here

    def replace_link(self, link: str, aim: str, how: Last) -> None:
        """Replace one link, under a lock across all processes of the run."""
        lock = os.open(os.path.join(os.path.dirname(self.mirror), "links.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.islink(link):
                (open_folder if os.path.isdir(aim) else copy_file)(link, aim, how)
        finally:
            os.close(lock)

    def list_folder(self, path: Any) -> None:
        """Replace links to folders before a folder is listed: `os.walk` does not follow links."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        folder = os.path.join(os.getcwd(), os.fsdecode(path or "."))
        if not is_within(os.path.realpath(folder), [self.mirror]):
            if not is_within(os.path.abspath(folder), [self.mirror]):
                return
            folder = self.walk(folder, "folder")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            link = os.path.join(folder, name)
            if os.path.islink(link) and os.path.isdir(link) and is_within(os.readlink(link), self.owned):
                self.replace_link(link, os.readlink(link), "folder")


def open_folder(link: str, aim: str, how: Last) -> None:
    """Replace a link by a folder of links to its content."""
    made = link + TEMPORARY
    shutil.rmtree(made, ignore_errors=True)
    os.mkdir(made)
    for name in os.listdir(aim):
        os.symlink(os.path.join(aim, name), os.path.join(made, name))
    os.unlink(link)
    os.rename(made, link)


def copy_file(link: str, aim: str, how: Last) -> None:
    """Replace a link by a copy of the file."""
    made, size = link + TEMPORARY, os.stat(aim).st_size
    if how == "empty":
        Path(made).touch()
        shutil.copymode(aim, made)
    elif size > shutil.disk_usage(os.path.dirname(link)).free // 2:
        raise OSError(
            errno.ENOSPC, f"{aim} is written to; there is no room for the rehearsal's copy of {size} bytes", link
        )
    else:
        shutil.copy2(aim, made)
    os.replace(made, link)


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return True if a path lies in one of the folders."""
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def watch_torch_save() -> None:
    """Wrap torch.save, which writes in C++ without calling audit hooks, so that it calls them."""
    import torch

    plain = torch.save

    @functools.wraps(plain)
    def save_checked(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", os.fspath(f), "w", os.O_WRONLY | os.O_TRUNC)
        return plain(obj, f, *args, **kwargs)

    torch.save = save_checked
