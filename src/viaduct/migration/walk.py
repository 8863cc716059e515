"""Which files of a project are migrated, which are copied, and which are left out, with the reason for each.

Nothing outside the folder is touched: links are not followed. What git ignores, virtual environments and caches are
left out, as a fresh clone would not have them either.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from viaduct.errors import BadValue

SUFFIXES = (".py", ".ipynb")
SHEBANG = re.compile(rb"#![^\n]*[/ \t]python[\d.]*(?:\s|\Z)")
"""Some scripts are started by their name alone and have no suffix."""
CACHES = {
    **dict.fromkeys((".git", ".hg", ".svn"), "version control"),
    **dict.fromkeys(("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"), "a cache"),
    **dict.fromkeys((".ipynb_checkpoints", ".eggs"), "a cache"),
    "node_modules": "installed packages",
}
CHINESE = {
    "cannot be read: ": "无法读取:",
    "version control": "版本控制目录",
    "a cache": "缓存目录",
    "installed packages": "已安装的软件包",
    "ignored by git": "被 git 忽略",
    "a virtual environment": "虚拟环境",
    "not a plain file": "不是普通文件",
    "a link to an absolute place; not followed": "指向绝对路径的链接,未跟随",
    "a link out of the project; not followed": "指向项目之外的链接,未跟随",
}
# A project may be somebody else's: git must not start what its configuration names.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    reason: str

    def why(self, language: str) -> str:
        if language != "zh":
            return self.reason
        known = next((english for english in CHINESE if self.reason.startswith(english)), "")
        return CHINESE[known] + self.reason[len(known) :] if known else self.reason


@dataclass
class Walk:
    """Paths are relative to the root, with /, in alphabetical order."""

    root: Path
    scripts: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # within the project: made again, not followed
    folders: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    single: bool = False


def walk(path: Path) -> Walk:
    """Of a file: it alone. Of a folder: all below it."""
    if not path.exists():
        raise BadValue(f"there is no {path}.", "Give a script, a notebook or the folder of a project.")
    if path.is_dir():
        return walk_folder(path)
    if not path.is_file():
        raise BadValue(f"{path} is not a plain file.")
    if not is_script(path):
        raise BadValue(f"{path} is neither a Python file nor a notebook.", "Give a .py or .ipynb file, or a folder.")
    return Walk(path.parent, scripts=[path.name], single=True)


def walk_folder(root: Path) -> Walk:
    found = Walk(root)
    ignored = ignored_by_git(root)
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            found.skipped.append(Skipped(folder or ".", f"cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            path = f"{folder}{entry.name}"
            reason = reason_to_skip(entry, path, root, ignored)
            if reason:
                found.skipped.append(Skipped(path, reason))
            elif entry.is_symlink():
                found.links.append(path)
            elif entry.is_dir(follow_symlinks=False):
                found.folders.append(path)
                pending.append(f"{path}/")
            else:
                (found.scripts if is_script(entry.path) else found.others).append(path)
    for paths in (found.scripts, found.others, found.links, found.folders):
        paths.sort()
    found.skipped.sort(key=lambda one: one.path)
    return found


def is_script(path: str | Path) -> bool:
    """By its suffix; without one, or of what can be executed, by a first line that names Python."""
    name = os.path.basename(path)
    if name.endswith(SUFFIXES):
        return True
    if "." in name and not os.access(path, os.X_OK):
        return False
    try:
        with open(path, "rb") as file:
            return SHEBANG.match(file.read(200)) is not None
    except OSError:
        return False


def reason_to_skip(entry: os.DirEntry[str], path: str, root: Path, ignored: set[str]) -> str:
    """Empty where nothing speaks against it."""
    if entry.is_symlink():
        return reason_to_skip_link(root / path, root)
    if path in ignored:
        return "ignored by git"
    if entry.is_dir(follow_symlinks=False):
        if os.path.isfile(os.path.join(entry.path, "pyvenv.cfg")):
            return "a virtual environment"
        return CACHES.get(entry.name, "")
    mode = entry.stat(follow_symlinks=False).st_mode
    return "" if stat.S_ISREG(mode) else "not a plain file"


def reason_to_skip_link(link: Path, root: Path) -> str:
    target = os.readlink(link)
    if os.path.isabs(target):
        return "a link to an absolute place; not followed"
    aim = os.path.normpath(os.path.join(os.path.relpath(link.parent, root), target))
    outside = aim == ".." or aim.startswith("../")
    return "a link out of the project; not followed" if outside else ""


def ignored_by_git(root: Path) -> set[str]:
    """Relative paths, folders without their last /; none where there is no git or no repository."""
    answer = ask_git(root, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    names = {os.fsdecode(name).rstrip("/") for name in (answer or b"").split(b"\0")}
    # A folder that is itself ignored by a repository around it was named by the user: then nothing counts as ignored.
    return set() if "." in names or "./" in names else names - {""}


def ask_git(root: Path, *words: str) -> bytes | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run([*GIT, "-C", str(root), *words], capture_output=True, timeout=60, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def changed_in_git(root: Path) -> list[str] | None:
    """Files that differ from the last commit, or are not in it; None: no repository."""
    answer = ask_git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    top = ask_git(root, "rev-parse", "--show-prefix")
    if answer is None or top is None:
        return None
    prefix = os.fsdecode(top).rstrip("\n")
    dirty = {os.fsdecode(line[3:]).removeprefix(prefix) for line in answer.split(b"\0") if line}
    return sorted(dirty)


def shown(path: str) -> str:
    """A path that can be printed: bytes that are no UTF-8 are written out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
