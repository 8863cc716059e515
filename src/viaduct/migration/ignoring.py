"""Find files that git ignores without running git: by .gitignore, info/exclude and the user's core.excludesFile.

Patterns are those of gitignore(5). Matching backtracks only to the last star, so no pattern takes long.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from viaduct.plain_files import read_plain_file
from viaduct.repository import Index, Repository, UnreadableRepository, find_repository, open_repository, read_settings

MAX_BYTES = 1 << 20
"""A larger file of patterns is not read."""
Test = Callable[[str], bool]
"""Test of one file name, or of one character."""
CHARACTER_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
"""Name of a class, as in `[[:alpha:]]` -> its characters."""


@dataclass(frozen=True)
class Pattern:
    """One line of a .gitignore."""

    segments: tuple[Test | None, ...]  # tests of the names between slashes; None for `**`
    negated: bool = False
    folder_only: bool = False

    def matches(self, path: str) -> bool:
        """Match a path relative to the folder of the pattern's file. As in git, `?` is one byte."""
        return match_path(self.segments, os.fsencode(path).decode("latin-1").split("/"))


@dataclass(frozen=True)
class IgnoreRules:
    """The ignore rules that apply in one folder."""

    lists: tuple[tuple[str, tuple[Pattern, ...]], ...] = ()  # (folder of the file, its patterns); later ones win
    index: Index = field(default_factory=Index)  # the files that git tracks
    prefix: str = ""  # path of this folder within the repository: "", or a path that ends in a slash
    is_inside_ignored: bool = False  # the folder is ignored, and so is everything in it except tracked files
    active: bool = False  # False: there is no repository, and nothing is ignored

    def is_ignored(self, name: str, is_folder: bool) -> bool:
        """Return True if git ignores an entry of this folder; tracked files and folders with one are not ignored."""
        path = self.prefix + name
        if not self.active or path in self.index.entries or (is_folder and path in self.index.folders):
            return False
        return self.is_matched(path, is_folder)

    def is_matched(self, path: str, is_folder: bool) -> bool:
        """Return True if the patterns ignore a path, tracked or not."""
        if self.is_inside_ignored:
            return True
        for base, patterns in reversed(self.lists):
            for pattern in reversed(patterns):
                if (is_folder or not pattern.folder_only) and pattern.matches(path[len(base) :]):
                    return not pattern.negated
        return False

    def enter(self, name: str, folder: Path) -> IgnoreRules:
        """Return the rules that apply in a subfolder: in a nested repository its own, none if it cannot be read."""
        if os.path.lexists(folder / ".git"):
            try:
                return load_repository_rules(open_repository(folder))
            except UnreadableRepository:
                return IgnoreRules()
        if not self.active:
            return self
        is_ignored = self.is_matched(self.prefix + name, is_folder=True)
        return replace(self, prefix=f"{self.prefix}{name}/", is_inside_ignored=is_ignored).add_gitignore(folder)

    def add_gitignore(self, folder: Path) -> IgnoreRules:
        """Return these rules with the patterns of a folder's .gitignore added."""
        patterns = read_patterns(folder / ".gitignore")
        return replace(self, lists=(*self.lists, (self.prefix, patterns))) if patterns else self


def load_ignore_rules(root: Path) -> IgnoreRules:
    """Return the rules for the folder of a project; none without a repository, or if it ignores this folder itself."""
    try:
        repository = find_repository(root)
    except UnreadableRepository:
        repository = None
    if repository is None:
        return IgnoreRules()
    rules, folder = load_repository_rules(repository), repository.top
    for name in root.resolve().relative_to(repository.top.resolve()).parts:
        folder = folder / name
        rules = rules.enter(name, folder)
        if rules.is_inside_ignored:
            return IgnoreRules()
    return rules


def load_repository_rules(repository: Repository) -> IgnoreRules:
    """Return the rules at the top of a repository. An index that cannot be read counts as empty."""
    try:
        index = repository.index
    except UnreadableRepository:
        index = Index()
    paths = (find_users_list(repository), repository.common / "info" / "exclude")
    lists = tuple(("", read_patterns(path)) for path in paths)
    return IgnoreRules(lists, index, active=True).add_gitignore(repository.top)


def find_users_list(repository: Repository) -> Path:
    """Return the file that core.excludesFile names, or git's default."""
    home = Path(os.path.expanduser("~"))
    config_folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    settings = {**read_settings(config_folder / "config"), **read_settings(home / ".gitconfig"), **repository.settings}
    path = settings.get("core.excludesfile")
    return Path(os.path.expanduser(path)) if path else config_folder / "ignore"


def read_patterns(path: Path) -> tuple[Pattern, ...]:
    """Return the patterns of a file; () if it cannot be read as a plain file of at most MAX_BYTES."""
    try:
        text = read_plain_file(path, MAX_BYTES).removeprefix(b"\xef\xbb\xbf").decode("latin-1")  # without a BOM
    except OSError:
        return ()
    return tuple(pattern for line in text.split("\n") if (pattern := parse_pattern(line.removesuffix("\r"))))


def parse_pattern(line: str) -> Pattern | None:
    """Return the pattern of one line of .gitignore; None for a line without one, such as a comment."""
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    text = line[1:] if negated else line
    folder_only = text.endswith("/")
    text = text.rstrip("/") if folder_only else text
    if not text:
        return None
    anchored = "/" in text
    parts = text.removeprefix("/").split("/")
    parts = parts if anchored else ["**", *parts]
    # Several `**` in a row match what one does.
    parts = [part for index, part in enumerate(parts) if part != "**" or parts[index - 1 : index] != ["**"]]
    segments = tuple(None if part == "**" else compile_segment(part) for part in parts)
    return Pattern(segments, negated, folder_only)


def match_path(pattern: tuple[Test | None, ...], names: list[str]) -> bool:
    """Return True if a pattern matches a path. `**` matches any number of folders, at the end at least one name."""
    if pattern[-1] is None and len(pattern) > 1:
        return any(match_path(pattern[:-1], names[:count]) for count in range(1, len(names)))
    return match_all(pattern, names)


def match_all(tests: Sequence[Test | None], items: Sequence[str]) -> bool:
    """Return True if the items pass the tests one by one; the test None matches any number of items.

    If a test fails, the last None before it matches one more item, and the tests after that None start again.
    """
    test_index = index = 0
    star = resume = -1  # position of the last None in `tests`, and of the first item that it does not match
    while index < len(items):
        test = tests[test_index] if test_index < len(tests) else None
        if test is not None and test(items[index]):
            test_index, index = test_index + 1, index + 1
        elif test is None and test_index < len(tests):
            star, resume, test_index = test_index, index, test_index + 1
        elif star >= 0:
            resume += 1
            test_index, index = star + 1, resume
        else:
            return False
    return all(test is None for test in tests[test_index:])


def compile_segment(text: str) -> Test:
    """Return a test of one file name for the text between two slashes; fast for `name`, `*.x` and `x*`."""
    tokens = list(iterate_tokens(text))
    letters = [token for token in tokens if isinstance(token, str)]
    literal = "".join(letters)
    if len(letters) == len(tokens):
        return literal.__eq__
    if len(letters) == len(tokens) - 1 and tokens[0] is None:
        return lambda name: name.endswith(literal)
    if len(letters) == len(tokens) - 1 and tokens[-1] is None:
        return lambda name: name.startswith(literal)
    tests = [token.__eq__ if isinstance(token, str) else token for token in tokens]
    return lambda name: match_all(tests, name)


def iterate_tokens(text: str) -> Iterator[str | Test | None]:
    """Yield the tokens of a pattern: None for a star, a test of one character for `?` and `[…]`, else the character."""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "*":
            yield None
            while text[position + 1 : position + 2] == "*":
                position += 1
        elif character == "?":
            yield lambda _: True
        elif character == "[" and (parsed := parse_set(text, position)) is not None:
            test, position = parsed
            yield test
        else:
            if character == "\\" and position + 1 < len(text):
                position += 1
            yield text[position]
        position += 1


def parse_set(text: str, start: int) -> tuple[Test, int] | None:
    """Return the test of the `[…]` at `start` and the position of its end; None if it does not end."""
    match = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]").match(text, start)
    if match is None:
        return None
    negated, body = bool(match[1]), match[2]
    items = re.findall(r"\[:(\w+):\]|(\\.|.)(?:-(\\.|.))?", body)  # (class, "", "") or ("", first, last of a range)
    class_names = [name for name, _, _ in items if name]
    is_valid = CHARACTER_CLASSES.keys() >= {*class_names}  # git matches nothing with a class that it does not know
    class_members = "".join(CHARACTER_CLASSES.get(name, "") for name in class_names)
    ranges = [(first[-1], (last or first)[-1]) for name, first, last in items if not name]

    def is_member(character: str) -> bool:
        is_inside = character in class_members or any(first <= character <= last for first, last in ranges)
        return is_valid and is_inside != negated

    return is_member, match.end() - 1
