"""Guard: keeps a rehearsed script from writing through the mirror's links into the user's files.

The mirror (`mirror.py`) is a folder of copies and links that the script sees in place of the user's folders. Python
calls an audit hook before it opens, removes or renames a file. The hook replaces a link of the mirror in the path by a
copy of the file, or by a folder of links. Writes by C++ code or another program do not call the hook; `mirror.py`
detects these writes afterwards in files behind links. Writing to a full path in the user's own folders is refused,
unless the user has passed this path to the script as an argument.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.wrapping import wrap

OWNED_FILE = "links.json"  # in the record folder: the list of the user's own files and folders
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
# Audit events whose first argument is a file that changes.
FILE_EVENTS = {"os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "sqlite3.connect"}
# Audit events whose first argument is a folder that is removed or entered, or whose entries are listed.
FOLDER_EVENTS = {"os.rmdir", "os.chdir", "shutil.rmtree"}
LISTING_EVENTS = {"os.scandir", "os.listdir"}
# Audit events that create or remove directory entries and do not follow a link in a path's last part; the value is the
# slice of the arguments that are such paths.
ENTRY_EVENTS = {
    **dict.fromkeys(("os.remove", "os.mkdir"), slice(0, 1)),
    **dict.fromkeys(("os.link", "os.symlink"), slice(1, 2)),
    "os.rename": slice(0, 2),
}
TEMPORARY_SUFFIX = ".viaduct-copy"  # of an incomplete copy
MAX_LINKS = 40  # followed in one path, the kernel's limit
# What happens to the last part of a path: it is created or removed, its content changes, it is emptied, or it is used
# as a folder.
Use = Literal["entry", "content", "empty", "folder"]


def save_owned_paths(record: str, owned: Iterable[str]) -> None:
    """Write the list of the user's files and folders for every process of the rehearsal."""
    (Path(record) / OWNED_FILE).write_text(json.dumps(sorted({path for path in owned if path})), encoding="utf-8")


def install(plan: Plan) -> None:
    """Install the audit hook in this process and its forks, where the script runs in a mirror."""
    path = Path(plan.record_folder) / OWNED_FILE
    if plan.file_view != "mirror" or not path.exists():
        return
    values = [split_flag(argument)[1] for argument in plan.arguments]
    owned = json.loads(path.read_text(encoding="utf-8"))
    sys.addaudithook(Guard(plan.mirror, owned, [*filter(os.path.isabs, values), plan.record_folder]).audit)


def split_flag(argument: str) -> tuple[str, str]:
    """Return ("--out=", "/data") for `--out=/data`; other arguments, and paths such as `/data/lr=0.1`, have no flag."""
    flag, equals, value = argument.partition("=")
    return (flag + equals, value) if equals and not os.path.isabs(argument) else ("", argument)


def redirect_arguments_to_mirror(plan: Plan) -> tuple[str, ...]:
    """Return the script's arguments; in a mirror, full paths into the project or start folder become paths in it."""
    if plan.file_view != "mirror":
        return plan.arguments
    moved = []
    for argument in plan.arguments:
        flag, path = split_flag(argument)
        if os.path.isabs(path) and is_within(os.path.normpath(path), (plan.project_root, plan.start_folder)):
            path = plan.mirror + path
        moved.append(flag + path)
    return tuple(moved)


class Guard:
    """Audit hook for one mirror. `owned` are the user's paths, `allowed` those that the script may write to."""

    def __init__(self, mirror: str, owned: Iterable[str], allowed: Iterable[str]) -> None:
        self.mirror = os.path.realpath(mirror)
        self.owned = tuple(map(os.path.realpath, owned))
        self.allowed = tuple(map(os.path.realpath, allowed))
        self._state = threading.local()  # `.busy`: this thread runs the hook

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event of Python."""
        if getattr(self._state, "busy", False):
            return
        self._state.busy = True  # the guard's own file operations call the hook again
        try:
            self.prepare(event, args)
        finally:
            self._state.busy = False

    def prepare(self, event: str, args: tuple[Any, ...]) -> None:
        """Replace the links that an event would write through; raise PermissionError if a file may not be written."""
        if event == "open":  # arguments: path, mode, flags
            if isinstance(args[2], int) and args[2] & WRITE_FLAGS:
                self.replace_links(args[0], "empty" if args[2] & os.O_TRUNC else "content")
        elif event in FILE_EVENTS:
            self.replace_links(args[0], "content")
        elif event in ENTRY_EVENTS:
            for path in args[ENTRY_EVENTS[event]]:
                if not (event == "os.mkdir" and os.path.lexists(path)):  # this mkdir will raise FileExistsError
                    self.replace_links(path, "entry")
        elif event in FOLDER_EVENTS:
            self.replace_links(args[0], "folder", refuse=event != "os.chdir")  # entering a folder writes nothing
        elif event in LISTING_EVENTS:
            self.replace_links_in_folder(args[0])
        elif event == "subprocess.Popen" and args[2] is not None:  # `cwd`
            self.replace_links(args[2], "folder", refuse=False)

    def replace_links(self, path: Any, use: Use, refuse: bool = True) -> None:
        """Replace links along a path by copies in the mirror.

        With `refuse` raise PermissionError for a path that still leads to the user's own files.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):  # a descriptor: the guard saw its path when it was opened
            return
        name = os.fsdecode(path)
        real = self.follow_path(os.path.join(os.getcwd(), name), use)
        if refuse and is_within(real, self.owned) and not is_within(real, (*self.allowed, self.mirror)):
            reason = f"this is your own {real}, which a script in a mirror may read, but not change, by its full path"
            raise PermissionError(
                errno.EACCES, f"{reason}; give the script a relative path, or rehearse with --here", name
            )

    def follow_path(self, path: str, use: Use) -> str:
        """Follow a path through links, replace links that lead out of the mirror by copies, and return the real path.

        A link to a missing file is not replaced, nor with the use "entry" a link in the path's last part.
        """
        waiting, folder, followed_links = path.split(os.sep), os.sep, 0
        while waiting:
            name = waiting.pop(0)
            if name in ("", ".", ".."):
                folder = os.path.dirname(folder) if name == ".." else folder
                continue
            entry = os.path.join(folder, name)
            is_last = not any(waiting)
            if not os.path.islink(entry) or (is_last and use == "entry"):
                folder = entry
                continue
            target = os.path.join(folder, os.readlink(entry))
            if is_within(entry, [self.mirror]) and not is_within(target, [self.mirror]) and os.path.exists(target):
                self.replace_link(entry, target, is_empty=is_last and use == "empty")
                folder = entry
                continue
            followed_links += 1
            if followed_links > MAX_LINKS:
                return entry
            waiting, folder = [*target.split(os.sep), *waiting], os.sep
        return folder

    def replace_link(self, link: str, target: str, is_empty: bool = False) -> None:
        """Replace one link by a copy of its target, under a lock across all processes of the run.

        With `is_empty` the copy of a file has no content, since the script is going to truncate it.
        """
        lock = os.open(os.path.join(os.path.dirname(self.mirror), "links.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.islink(link):
                if os.path.isdir(target):
                    make_link_folder(link, target)
                else:
                    copy_file(link, target, is_empty)
        finally:
            os.close(lock)

    def replace_links_in_folder(self, path: Any) -> None:
        """Before a folder is listed, replace its links to folders: `os.walk` does not descend into links."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        folder = os.path.join(os.getcwd(), os.fsdecode(path or "."))
        if not is_within(os.path.realpath(folder), [self.mirror]):
            if not is_within(os.path.abspath(folder), [self.mirror]):
                return
            folder = self.follow_path(folder, "folder")  # the path leads through links of the mirror
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            link = os.path.join(folder, name)
            if os.path.islink(link) and os.path.isdir(link) and is_within(os.readlink(link), self.owned):
                self.replace_link(link, os.readlink(link))


def make_link_folder(link: str, target: str) -> None:
    """Replace a link by a folder of links to the entries of its target."""
    folder = link + TEMPORARY_SUFFIX
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for name in os.listdir(target):
        os.symlink(os.path.join(target, name), os.path.join(folder, name))
    os.unlink(link)
    os.rename(folder, link)


def copy_file(link: str, target: str, is_empty: bool) -> None:
    """Replace a link by a copy of its target, a file; raise OSError for one larger than half of the free space."""
    copy, size = link + TEMPORARY_SUFFIX, os.stat(target).st_size
    if is_empty:
        Path(copy).touch()
        shutil.copymode(target, copy)
    elif size > shutil.disk_usage(os.path.dirname(link)).free // 2:
        raise OSError(
            errno.ENOSPC,
            f"{target} is written to; its copy of {size} bytes would take more than half of the free space",
            link,
        )
    else:
        shutil.copy2(target, copy)
    os.replace(copy, link)


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return True if a path lies in one of the folders."""
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def add_audit_to_torch_save() -> None:
    """Wrap torch.save, which writes in C++, so that it calls audit hooks as Python's own functions do."""
    import torch

    @wrap(torch, "save")
    def save_checked(plain: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", os.fspath(f), "w", os.O_WRONLY | os.O_TRUNC)
        return plain(obj, f, *args, **kwargs)
