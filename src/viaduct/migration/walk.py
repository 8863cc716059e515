"""Find the files of a project that are migrated, copied, or left out with a reason.

Links are not followed. Files that git ignores, virtual environments, caches and the like are left out.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.migration import ignoring
from viaduct.migration.ignoring import IgnoreRules
from viaduct.plain_files import open_plain_file, read_plain_file
from viaduct.repository import Repository, find_repository, open_repository
from viaduct.terminal import escape_controls

SUFFIXES = (".py", ".ipynb")
SHEBANG = re.compile(rb"#![^\n]*[/ \t]python[\d.]*(?:\s|\Z)")
"""First line of a Python script that is not named *.py."""
STATE_FOLDER = ".viaduct-migration"
"""Folder of the journal of a migration in place; it exists while files are written."""
PARTIAL_SUFFIX = ".viaduct-partial"
"""Suffix of the folder of an unfinished copy by --out."""
SKIPPED_NAMES = {
    **dict.fromkeys((".git", ".hg", ".svn"), "version control"),
    **dict.fromkeys(("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"), "a cache"),
    **dict.fromkeys((".ipynb_checkpoints", ".eggs"), "a cache"),
    "node_modules": "installed packages",
    STATE_FOLDER: "viaduct's own",
}
EXCLUDED = "left out by --exclude"
BROKEN_LINK = "a link to nothing"
DELIBERATE_REASONS = {*SKIPPED_NAMES.values(), "ignored by git", "a virtual environment", EXCLUDED}
REASONS_ZH = {
    "cannot be read: ": "无法读取:",
    "version control": "版本控制目录",
    "a cache": "缓存目录",
    "installed packages": "已安装的软件包",
    "viaduct's own": "viaduct 自身的文件",
    BROKEN_LINK: "指向不存在目标的链接",
    "ignored by git": "被 git 忽略",
    EXCLUDED: "由 --exclude 排除",
    "a virtual environment": "虚拟环境",
    "not a plain file": "不是普通文件",
    "a link to an absolute place; not followed": "指向绝对路径的链接,未跟随",
    "a link out of the project; not followed": "指向项目之外的链接,未跟随",
}


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A path that is left out or cannot be read."""

    path: str
    reason: str

    @property
    def is_deliberate(self) -> bool:
        """True for caches and the like, virtual environments, files that git ignores, and those of --exclude."""
        return self.reason in DELIBERATE_REASONS

    def reason_in(self, language: str) -> str:
        if language != "zh":
            return self.reason
        prefix = next((english for english in REASONS_ZH if self.reason.startswith(english)), "")
        return REASONS_ZH[prefix] + self.reason[len(prefix) :] if prefix else self.reason


@dataclass
class Walk:
    """Files of a project: paths relative to the root, with /, in alphabetical order."""

    root: Path
    scripts: list[str] = field(default_factory=list)  # Python files and notebooks
    other_files: list[str] = field(default_factory=list)  # all other files
    links: list[str] = field(default_factory=list)  # links into the project and broken ones; --out copies them
    folders: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)  # by --exclude: copied unchanged
    skipped: list[SkippedPath] = field(default_factory=list)
    interrupted_folders: list[str] = field(default_factory=list)  # subfolders in which there is a STATE_FOLDER
    is_single_script: bool = False  # the user gave one script instead of a folder

    def read(self, path: str, max_bytes: int | None = None) -> bytes | None:
        """Return the content of a file, b"" if it is larger than `max_bytes`, None if it cannot be read.

        A file that cannot be read is moved to `skipped`.
        """
        file = self.root / path
        try:
            # A single script may have been named through a link; within a folder links are not followed.
            plain = Path(os.path.realpath(file)) if self.is_single_script else file
            return b"" if max_bytes is not None and os.lstat(plain).st_size > max_bytes else read_plain_file(plain)
        except OSError as error:
            self.leave_out(path, f"cannot be read: {error.strerror}")
            return None

    def exclude(self, pattern: str) -> list[str]:
        """Move the files that a pattern as in .gitignore matches to `excluded`; return them. `!x` matches none."""
        parsed = ignoring.parse_pattern(pattern.removeprefix("./"))
        paths = [*self.scripts, *self.other_files]
        matching = {
            path for path in paths if parsed is not None and not parsed.negated and matches_path_or_folder(parsed, path)
        }
        self.scripts = [path for path in self.scripts if path not in matching]
        self.other_files = [path for path in self.other_files if path not in matching]
        self.excluded = sorted({*self.excluded, *matching})
        left_out = [SkippedPath(path, EXCLUDED) for path in matching]
        self.skipped = sorted([*self.skipped, *left_out], key=lambda entry: entry.path)
        return sorted(matching)

    def leave_out(self, path: str, reason: str) -> None:
        """Move a path to `skipped`."""
        for paths in (self.scripts, self.other_files, self.excluded, self.links):
            if path in paths:
                paths.remove(path)
        self.skipped = sorted([*self.skipped, SkippedPath(path, reason)], key=lambda entry: entry.path)


def matches_path_or_folder(pattern: ignoring.Pattern, path: str) -> bool:
    """Return True if a pattern matches a file or one of the folders around it."""
    parts = path.split("/")
    folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return any(map(pattern.matches, folders)) or (not pattern.folder_only and pattern.matches(path))


def walk(path: Path) -> Walk:
    """Find the files below a folder; for a script return it alone, for other paths raise BadValue."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise BadValue(
            f"there is no {printable_path(path)}.", "Give a script, a notebook or the folder of a project."
        ) from None
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    if stat.S_ISDIR(mode):
        return walk_folder(path)
    if not stat.S_ISREG(mode):
        raise BadValue(f"{printable_path(path)} is not a plain file.", "Give a script, a notebook or a folder.")
    if not is_script(path):
        raise BadValue(
            f"{printable_path(path)} is neither a Python file nor a notebook.",
            "Give a .py or .ipynb file, or a folder.",
        )
    return Walk(path.parent, scripts=[path.name], is_single_script=True)


def make_unreadable_error(path: Path, error: OSError) -> BadValue:
    return BadValue(
        f"{printable_path(path)} cannot be read: {error.strerror}.", "Give a script or a folder that you may read."
    )


def walk_folder(root: Path) -> Walk:
    files = Walk(root)
    pending = [("", ignoring.load_ignore_rules(root))]  # (path of a folder, "" or with a slash at its end; its rules)
    while pending:
        folder, rules = pending.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            if not folder:
                raise make_unreadable_error(root, error) from None
            files.skipped.append(SkippedPath(folder.rstrip("/"), f"cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            path = f"{folder}{entry.name}"
            reason = find_reason_to_skip(entry, path, root, rules)
            if reason:
                files.skipped.append(SkippedPath(path, reason))
            if entry.name == STATE_FOLDER and folder and entry.is_dir(follow_symlinks=False):
                files.interrupted_folders.append(folder)
            if entry.is_symlink():
                files.links += [path] if reason in ("", BROKEN_LINK) else []
            elif reason:
                continue
            elif entry.is_dir(follow_symlinks=False):
                files.folders.append(path)
                pending.append((f"{path}/", rules.enter(entry.name, root / path)))
            else:
                (files.scripts if is_script(entry.path) else files.other_files).append(path)
    for paths in (files.scripts, files.other_files, files.links, files.folders):
        paths.sort()
    files.skipped.sort(key=lambda entry: entry.path)
    return files


def is_script(path: str | Path) -> bool:
    """Return True for a Python script or notebook, by its suffix; if executable or without a suffix, by `#!…python`."""
    name = os.path.basename(path)
    if name.endswith(SUFFIXES):
        return True
    if "." in name and not os.access(path, os.X_OK):
        return False
    try:
        with open_plain_file(os.path.realpath(path)) as file:
            return SHEBANG.match(file.read(200)) is not None
    except OSError:
        return False


def find_reason_to_skip(entry: os.DirEntry[str], path: str, root: Path, rules: IgnoreRules) -> str:
    """Return the reason why an entry is left out, else ""."""
    try:
        if SKIPPED_NAMES.get(entry.name) == "version control":  # in a worktree or a submodule .git is a file
            return "version control"
        if entry.is_symlink():
            return find_reason_to_skip_link(root / path, root)
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.is_ignored(entry.name, is_folder):
            return "ignored by git"
        if is_folder:
            if os.path.isfile(os.path.join(entry.path, "pyvenv.cfg")):
                return "a virtual environment"
            is_partial_copy = entry.name.endswith(PARTIAL_SUFFIX)
            return SKIPPED_NAMES.get(STATE_FOLDER if is_partial_copy else entry.name, "")
        if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            return "not a plain file"
        return "" if os.access(entry.path, os.R_OK) else f"cannot be read: {os.strerror(errno.EACCES)}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def find_reason_to_skip_link(link: Path, root: Path) -> str:
    target = os.readlink(link)
    if os.path.isabs(target):
        return "a link to an absolute place; not followed"
    destination = os.path.normpath(os.path.join(os.path.relpath(link.parent, root), target))
    if destination == ".." or destination.startswith("../"):
        return "a link out of the project; not followed"
    return "" if os.path.lexists(root / destination) else BROKEN_LINK


def find_unsaved_files(files: Walk) -> list[str] | None:
    """Return the files that git could not restore, and deleted tracked files; None without a repository.

    git is not run: its files are read, and UnreadableRepository is raised if that fails. A file with git filters counts
    as unsaved unless it is unchanged since git last updated its index.
    """
    repository = find_repository(files.root)
    if repository is None:
        return None
    repositories = (path for path in files.folders if os.path.lexists(files.root / path / ".git"))  # such as submodules
    nested = {folder: open_repository(files.root / folder) for folder in repositories}
    unsaved = [] if files.is_single_script else find_missing_files(repository, files.root)
    prefix = find_prefix(repository, files.root)
    for path in {*files.scripts, *files.other_files, *files.excluded, *files.links}:
        folder = next((folder for folder in list_folders_above(path) if folder in nested), None)
        index = repository.index if folder is None else nested[folder].index
        tracked_path = prefix + path if folder is None else path[len(folder) + 1 :]
        if not index.has_content_of(tracked_path, files.root / path):
            unsaved.append(path)
    return sorted(unsaved)


def find_missing_files(repository: Repository, root: Path) -> list[str]:
    prefix = find_prefix(repository, root)
    paths = [
        path for path, entry in repository.index.entries.items() if path.startswith(prefix) and not entry.skip_worktree
    ]
    return [path[len(prefix) :] for path in paths if not os.path.lexists(repository.top / path)]


def find_prefix(repository: Repository, root: Path) -> str:
    """Return the path of a folder within its repository: "", or a path that ends in a slash."""
    path = root.resolve().relative_to(repository.top.resolve()).as_posix()
    return "" if path == "." else f"{path}/"


def list_folders_above(path: str) -> list[str]:
    """Return the folders around a path, the innermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def printable_path(path: object) -> str:
    """Return a path, or an error about one, with control characters and bytes that are not UTF-8 escaped."""
    return escape_controls(str(path))


def printable_text(text: str) -> str:
    """Return text with control characters except tabs escaped."""
    return escape_controls(text, keep="\t")
