"""The helper module that `--to any` writes into a project: its name and its folder.

Scripts import an object from it that stands for whatever accelerator there is. `helper_text.py` makes its text,
`helper_file.py` extends one that exists, `helper_cell.py` puts it into a notebook.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from viaduct.migration.import_graph import scan_statements
from viaduct.migration.project import HELPER_MODULE
from viaduct.migration.walk import Walk

HELPER_OBJECT = "accelerator"
"""Name of the object that scripts import from the helper."""
HELPER_MARK = b"Written by `viaduct migrate --to any`"
"""Text by which a helper is recognised, also after its owner has changed it."""
MAY_NEED_HELPER = re.compile(rb"torch|cuda|nccl|" + HELPER_MODULE.encode())
"""A script without any of these words needs no helper."""
PACKAGE_FILES = ("setup.py", "setup.cfg", "pyproject.toml")
"""Files of a project that is installed as a package: there the helper lies in the package, not beside it."""


def is_helper(data: bytes) -> bool:
    """Return True for the content of a helper file."""
    return HELPER_MARK in data[:1000]


def plan_helpers(found: Walk, texts: Iterable[tuple[str, bytes]]) -> dict[str, tuple[str, str]]:
    """Return, for each script that may need the helper, the module that it imports and the file in which that lies."""
    contents = dict(texts)
    name = free_name(found, contents)
    packaged = any(path in PACKAGE_FILES for path in (*found.scripts, *found.others))
    tree = ScriptTree(set(found.scripts), {path: set(absolute_imports(data)) for path, data in contents.items()})
    planned = {}
    for path in (path for path, data in contents.items() if MAY_NEED_HELPER.search(data)):
        home, package = tree.home_of(path)
        inside = packaged and package
        file = home / (package if inside else "") / f"{name}.py"
        planned[path] = (f"{package}.{name}" if inside else name, str(file))
    return planned


def free_name(found: Walk, contents: dict[str, bytes]) -> str:
    """Return `accelerator_device`, with a number if another file or folder of the project has that name."""
    taken = {
        PurePosixPath(path).with_suffix("").name
        for path in (*found.folders, *found.links, *found.others, *found.excluded)
    }
    taken |= {PurePosixPath(path).stem for path, data in contents.items() if not is_helper(data)}
    if found.single:
        taken |= {Path(item).stem for item in os.listdir(found.root) if not is_own(found.root / item)}
    name, number = HELPER_MODULE, 2
    while name in taken:
        name, number = f"{HELPER_MODULE}_{number}", number + 1
    return name


def is_own(path: Path) -> bool:
    """Return True for a helper file; only a file whose name begins like the helper's is read."""
    return path.stem.startswith(HELPER_MODULE) and path.is_file() and is_helper(path.read_bytes())


def absolute_imports(data: bytes) -> Iterator[str]:
    """Yield the dotted names that a text imports, of `from a import b` both a and a.b, without relative ones."""
    for dots, module, members in scan_statements(data) if b"import" in data else ():
        if not dots:
            yield from (module, *(f"{module}.{member}" for member in members))


@dataclass
class ScriptTree:
    """Scripts of a project, and what each imports."""

    scripts: set[str]
    imported: dict[str, set[str]]  # script -> dotted names that it imports

    def __post_init__(self) -> None:
        self.all_imported = set().union(*self.imported.values())
        self.modules = {PurePosixPath(path).with_suffix("") for path in self.scripts}
        self.places = self.modules | {folder for module in self.modules for folder in module.parents}

    def home_of(self, path: str) -> tuple[PurePosixPath, str]:
        """Return the folder from which a script's imports are looked up, and its top-level package or an empty text."""
        folder = PurePosixPath(path).parent
        outer = folder
        while str(outer / "__init__.py") in self.scripts and outer != outer.parent:
            outer = outer.parent
        if folder != outer:
            return outer, folder.relative_to(outer).parts[0]
        roots = [*self.import_roots(path, folder), *self.roots_of_importers(path)]
        return min(roots, key=lambda root: len(root.parts), default=folder), ""

    def import_roots(self, path: str, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """Yield, for each import of a script, the first folder from its own outwards that contains what it names."""
        for name in self.imported.get(path, ()):
            first = name.partition(".")[0]
            yield from [root for root in (folder, *folder.parents) if root / first in self.places][:1]

    def roots_of_importers(self, path: str) -> Iterator[PurePosixPath]:
        """Yield the folder from which others import this script by a dotted name: `from lib.engine import run`."""
        parts = PurePosixPath(path).with_suffix("").parts
        for cut in range(len(parts) - 1):
            if ".".join(parts[cut:]) in self.all_imported:
                yield PurePosixPath(*parts[:cut])
                return
