"""Import graph of a project: which files import which, and which run together in one program.

Names are matched with files only; nothing is imported. A script in a folder imports its neighbours by their bare names,
and a project may itself be a folder of a larger package, so a dotted name is tried as it stands, from the folder of the
file that imports it, and by its end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from viaduct.cards import NPU
from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.project import Project

LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        *("tensorflow", "torch", "keras", "horovod", "numpy", *NPU.tensorflow_modules, "absl"),
        *PYTORCH_COMPANIONS,
    }
)
"""Roots whose submodules (`tensorflow.data`) are never files of the project."""
IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([\w, \t(]+)|import[ \t]+([\w., \t]+))", re.M)


class Modules:
    """Files of a project by their dotted names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = {Project.module_of(path)[0]: path for path in paths}
        self.tails: dict[str, list[str]] = {}
        for name in self.paths:
            self.tails.setdefault(name.rpartition(".")[2], []).append(name)

    def find(self, name: str, importer: str) -> str | None:
        """Return the file that a dotted name stands for in the file `importer`; None for another package's."""
        folder = Project.module_of(importer)[0].rpartition(".")[0]
        for candidate in (f"{folder}.{name}" if folder else name, name):
            if candidate in self.paths:
                return self.paths[candidate]
        if name.partition(".")[0] in LIBRARIES:
            return None
        parts = name.split(".")
        for start in range(1, len(parts)):
            if (end := ".".join(parts[start:])) in self.paths:
                return self.paths[end]
        longer = [known for known in self.tails.get(parts[-1], ()) if known.endswith(f".{name}")]
        return self.paths[longer[0]] if len(longer) == 1 else None

    def find_all(self, names: Iterable[str], importer: str) -> set[str]:
        """Return the files that modules of these names lie in."""
        found = (self.find(name, importer) for name in names)
        return {path for path in found if path is not None} - {importer}


def scan_imports(data: bytes, path: str) -> Iterator[str]:
    """Yield the dotted names that a text imports, seen without parsing it."""
    module, is_package = Project.module_of(path)
    parts = [part for part in module.split(".") if part]
    for base, names, plain in IMPORT.findall(data):
        if plain:
            yield from (item.split()[0] for item in plain.decode().split(",") if item.strip())
            continue
        text = base.decode()
        dots = len(text) - len(text.lstrip("."))
        if dots:
            kept = parts[: len(parts) - dots + is_package]
            text = ".".join([*kept, *filter(None, [text.lstrip(".")])])
        if text:
            yield text
        imported = (token.split()[0] for token in names.decode().replace("(", " ").split(",") if token.strip())
        yield from (f"{text}.{name}" if text else name for name in imported)


def note_importers(project: Project) -> None:
    """Fill `project.importers`, the reverse of `project.imports`."""
    for path, imported in project.imports.items():
        for other in imported:
            project.importers.setdefault(other, set()).add(path)


def programs_of(project: Project, path: str) -> list[set[str]]:
    """Return the programs that a file can be part of, each as the set of its files; at least the file's own."""
    above, pending = {path}, [path]
    while pending:
        fresh = project.importers.get(pending.pop(), set()) - above
        above |= fresh
        pending += fresh
    roots = [parent for parent in above if not project.importers.get(parent)]
    return [project.reaches(root) for root in sorted(roots or above)]


def escapes_of(project: Project, path: str) -> list[str]:
    """Return the lines, as `file:line`, of the file's programs at which Horovod's module is not followed."""
    if not project.escapes:
        return []
    files = {item for program in programs_of(project, path) for item in program}
    return [f"{node}:{line}" for node in sorted(files & {*project.escapes}) for line in sorted(project.escapes[node])]
