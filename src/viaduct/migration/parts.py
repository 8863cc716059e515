"""Split a large project, such as a model zoo, into parts that are migrated separately, so that memory is bounded.

Files that import each other, directly or not, are in one part. Small parts of one folder are joined, because they may
import each other at run time. A part above MAX_PART_BYTES is cut by folders into pieces. With each piece, the files
that it imports and those that import it are analysed too, up to MAX_PIECE_BYTES.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from viaduct.migration.graphs import group_connected, reverse_edges
from viaduct.migration.import_graph import Modules, scan_imports
from viaduct.migration.reexports import find_nearest_module

MIN_SPLIT_BYTES = 6_000_000
"""A smaller project is one part."""
MAX_PART_BYTES = 6_000_000
"""A larger part is cut. This is about 150,000 lines; their syntax trees and tables take about 500 MB."""
MAX_PIECE_BYTES = 3_000_000
"""Largest size of a piece of several files, of the files around it, and of small parts that are joined."""


@dataclass(frozen=True)
class Part:
    """Files that are migrated together."""

    members: tuple[str, ...]  # files that are migrated
    around: tuple[str, ...] = ()  # files that members import, or that import members: they are only analysed


def split_parts(texts: dict[str, bytes]) -> list[Part]:
    """Return the parts of a project, the largest first."""
    if sum(map(len, texts.values())) < MIN_SPLIT_BYTES:
        return [Part(tuple(texts))]
    imports = find_imports(texts)
    parts: list[Part] = []
    for group in join_small(group_connected(imports, imports), texts):
        if measure_size(group, texts) <= MAX_PART_BYTES or len(group) == 1:
            parts.append(Part(tuple(group)))
        else:
            parts += cut_group(group, imports, texts)
    return sorted(parts, key=lambda part: -measure_size([*part.members, *part.around], texts))


def measure_size(paths: list[str], texts: dict[str, bytes]) -> int:
    return sum(len(texts[path]) for path in paths)


def find_imports(texts: dict[str, bytes]) -> dict[str, set[str]]:
    """Return file -> files of the project that it imports, found without parsing."""
    modules = Modules(texts)
    imports = {}
    for path, data in texts.items():
        package = ".".join(PurePosixPath(path).parent.parts)
        names = set(scan_imports(data, path))
        imports[path] = {file for name in names for file in find_files(name, package, modules)} - {path}
    return imports


def find_files(name: str, package: str, modules: Modules) -> Iterator[str]:
    """Yield the file of a dotted name, and those of the packages around it: for a.b.c also a.b and a.

    `package`: folder of the importing file, as a dotted name.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = find_nearest_module(".".join(parts[:length]), package, modules.paths, modules.by_last_name)
        if module is not None:
            yield modules.paths[module]


def join_small(groups: list[list[str]], texts: dict[str, bytes]) -> list[list[str]]:
    """Join small groups of the same folder, the deepest folders first; then those of the folder above, and so on."""
    by_folder: dict[tuple[str, ...], list[list[str]]] = {}
    for group in groups:
        by_folder.setdefault(find_common_folder(group), []).append(group)
    deepest = max(map(len, by_folder), default=0)
    for depth in range(deepest, -1, -1):
        for folder in [folder for folder in by_folder if len(folder) == depth]:
            small: list[list[str]] = []
            large: list[list[str]] = []
            for group in sorted(by_folder.pop(folder)):
                (small if measure_size(group, texts) < MAX_PIECE_BYTES else large).append(group)
            by_folder.setdefault(folder[:-1] if depth else folder, []).extend([*join_groups(small, texts), *large])
    return by_folder.get((), [])


def join_groups(groups: list[list[str]], texts: dict[str, bytes]) -> list[list[str]]:
    """Join consecutive groups up to MAX_PIECE_BYTES."""
    joined: list[list[str]] = []
    remaining = 0  # bytes that still fit into the last group of `joined`
    for group in groups:
        size = measure_size(group, texts)
        if joined and size <= remaining:
            joined[-1] += group
            remaining -= size
        else:
            joined.append([*group])
            remaining = MAX_PIECE_BYTES - size
    return joined


def find_common_folder(paths: list[str]) -> tuple[str, ...]:
    """Return the innermost folder that contains all files."""
    folders = [PurePosixPath(path).parent.parts for path in paths]
    first, last = min(folders), max(folders)  # a prefix of the first and last in order is a prefix of all
    count = 0
    while count < min(len(first), len(last)) and first[count] == last[count]:
        count += 1
    return first[:count]


def cut_group(group: list[str], imports: dict[str, set[str]], texts: dict[str, bytes]) -> Iterator[Part]:
    """Cut a group by folders, and add to each piece the files around it."""
    importers = reverse_edges({path: imports[path] for path in group})
    for members in join_groups([[path] for path in sorted(group, key=lambda path: PurePosixPath(path).parts)], texts):
        yield Part(tuple(members), tuple(find_files_around(members, imports, importers, texts)))


def find_files_around(
    members: list[str], imports: dict[str, set[str]], importers: dict[str, set[str]], texts: dict[str, bytes]
) -> Iterator[str]:
    """Yield imports and importers of the members, then their imports, transitively, up to MAX_PIECE_BYTES."""
    visited, remaining = set(members), MAX_PIECE_BYTES
    pending = deque([*((path, imports) for path in members), *((path, importers) for path in members)])
    while pending and remaining > 0:
        path, edges = pending.popleft()
        for neighbour in sorted(edges.get(path, set()) - visited):
            visited.add(neighbour)
            if len(texts[neighbour]) <= remaining:
                remaining -= len(texts[neighbour])
                pending.append((neighbour, imports))
                yield neighbour
