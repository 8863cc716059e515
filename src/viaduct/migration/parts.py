"""Parts of a large project that can be migrated apart: files that import each other, directly or not, stay together.

A model zoo is hundreds of projects in one tree, and none says anything about another. Each part is surveyed and
rewritten on its own, in one process, and then forgotten, so that memory is bounded by the largest part. Files are
joined where an import can be matched with a file, and small parts of one folder are joined as well, since imports that
are made at run time cannot be seen. A part beyond WHOLE is cut by its folders; each piece is then surveyed together
with the files that it imports and those that import it, as far as they fit.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from viaduct.migration.project import Project

SPLIT_FROM = 6_000_000
"""Bytes of all texts together: a smaller project is one part."""
WHOLE = 6_000_000
"""Bytes of a part that is not cut: about 170,000 lines, whose trees take about 300 MB."""
PIECE = 3_000_000
"""Bytes of a piece of a larger one, and as much again for the files around it."""
IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)


@dataclass(frozen=True)
class Part:
    """members: the files that are rewritten; around: those that are only surveyed with them."""

    members: tuple[str, ...]
    around: tuple[str, ...] = ()


def split_parts(texts: dict[str, bytes]) -> list[Part]:
    """Return the parts of a project, the largest first."""
    if sum(map(len, texts.values())) < SPLIT_FROM:
        return [Part(tuple(texts))]
    imports = find_imports(texts)
    parts: list[Part] = []
    for group in join_small(group_by_imports(imports), texts):
        if size_of(group, texts) <= WHOLE or len(group) == 1:
            parts.append(Part(tuple(group)))
        else:
            parts += cut(group, imports, texts)
    return sorted(parts, key=lambda part: -size_of([*part.members, *part.around], texts))


def size_of(paths: list[str], texts: dict[str, bytes]) -> int:
    """Return the bytes of several files together."""
    return sum(len(texts[path]) for path in paths)


# ---- who imports whom


def find_imports(texts: dict[str, bytes]) -> dict[str, set[str]]:
    """File -> files of the project that it imports, seen without parsing."""
    modules = {Project.module_of(path)[0]: path for path in texts}
    tails: dict[str, list[str]] = {}
    for name in modules:
        tails.setdefault(name.rpartition(".")[2], []).append(name)
    found = {}
    for path, data in texts.items():
        folder = PurePosixPath(path).parent.parts
        named = set(imported_names(data, folder))
        found[path] = {match for name in named for match in matches(name, folder, modules, tails)} - {path}
    return found


def imported_names(data: bytes, folder: tuple[str, ...]) -> Iterator[str]:
    """Dotted names that a text imports: of `from a import b` both a and a.b."""
    for base, names, plain in IMPORT.findall(data):
        if plain:
            yield from (part.split()[0] for part in plain.decode().split(",") if part.split())
            continue
        module = base.decode().lstrip(".")
        dots = len(base) - len(base.lstrip(b"."))
        if dots:
            module = ".".join([*folder[: len(folder) - dots + 1], *([module] if module else [])])
        listed = re.findall(r"\w+", names.decode(errors="replace"))
        yield from (module, *(f"{module}.{name}" if module else name for name in listed))


def matches(name: str, folder: tuple[str, ...], modules: dict[str, str], tails: dict[str, list[str]]) -> Iterator[str]:
    """The file of a name and of the packages in it, looked up from the folder outwards; else the only one so called."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        wanted = ".".join(parts[:length])
        for count in range(len(folder), -1, -1):
            full = ".".join([*folder[:count], wanted])
            if full in modules:
                yield modules[full]
                break
        else:
            longer = [known for known in tails.get(parts[length - 1], ()) if known.endswith(f".{wanted}")]
            if len(longer) == 1:
                yield modules[longer[0]]


def group_by_imports(imports: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files between which imports lead."""
    neighbours: dict[str, set[str]] = {path: set(found) for path, found in imports.items()}
    for path, found in imports.items():
        for other in found:
            neighbours[other].add(path)
    groups, seen = [], set[str]()
    for path in imports:
        if path in seen:
            continue
        group, pending = [], [path]
        seen.add(path)
        while pending:
            at = pending.pop()
            group.append(at)
            fresh = neighbours[at] - seen
            seen |= fresh
            pending += fresh
        groups.append(sorted(group))
    return groups


# ---- neither too small nor too large


def join_small(groups: list[list[str]], texts: dict[str, bytes]) -> list[list[str]]:
    """Join the groups of a folder, with all below it, where they are no more than a piece together."""
    by_folder: dict[tuple[str, ...], list[list[str]]] = {}
    for group in groups:
        by_folder.setdefault(common_folder(group), []).append(group)
    deepest = max(map(len, by_folder), default=0)
    for depth in range(deepest, -1, -1):
        for folder in [folder for folder in by_folder if len(folder) == depth]:
            held = sorted(by_folder.pop(folder))
            small = [group for group in held if size_of(group, texts) < PIECE]
            packed = pack(small, texts) + [group for group in held if size_of(group, texts) >= PIECE]
            by_folder.setdefault(folder[:-1] if depth else folder, []).extend(packed)
    return by_folder.get((), [])


def pack(groups: list[list[str]], texts: dict[str, bytes]) -> list[list[str]]:
    """Join neighbours, in the order of their names, as long as they are small together."""
    found: list[list[str]] = []
    room = 0
    for group in groups:
        size = size_of(group, texts)
        if found and size <= room:
            found[-1] += group
            room -= size
        else:
            found.append([*group])
            room = PIECE - size
    return found


def common_folder(paths: list[str]) -> tuple[str, ...]:
    """Return the folder that holds all of several files."""
    folders = [PurePosixPath(path).parent.parts for path in paths]
    shortest, longest = min(folders), max(folders)  # what these two share, all share
    count = 0
    while count < min(len(shortest), len(longest)) and shortest[count] == longest[count]:
        count += 1
    return shortest[:count]


def cut(group: list[str], imports: dict[str, set[str]], texts: dict[str, bytes]) -> Iterator[Part]:
    """Cut a group by folders, and give each piece the files around it."""
    importers: dict[str, set[str]] = {}
    for path in group:
        for other in imports[path]:
            importers.setdefault(other, set()).add(path)
    for members in pack([[path] for path in sorted(group, key=lambda path: PurePosixPath(path).parts)], texts):
        yield Part(tuple(members), tuple(files_around(members, imports, importers, texts)))


def files_around(
    members: list[str], imports: dict[str, set[str]], importers: dict[str, set[str]], texts: dict[str, bytes]
) -> Iterator[str]:
    """Yield what the members import, then who imports them, then what those files import, and so on, while there is
    room.
    """
    seen, room = set(members), PIECE
    pending = deque([*((path, imports) for path in members), *((path, importers) for path in members)])
    while pending and room > 0:
        path, table = pending.popleft()
        for other in sorted(table.get(path, set()) - seen):
            seen.add(other)
            if len(texts[other]) <= room:
                room -= len(texts[other])
                pending.append((other, imports))
                yield other
