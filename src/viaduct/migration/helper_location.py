"""Determine the name and folder of the helper module that `--to any` writes into a project.

Scripts import from it the object `accelerator`, which stands for the machine's accelerator. `helper_text.py` renders
its text, `helper_file.py` extends an existing one, `helper_cell.py` inserts it into a notebook.
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
"""Text by which a helper is recognised, also after the user has changed it."""
DEVICE_TERMS = re.compile(rb"torch|cuda|nccl|" + HELPER_MODULE.encode())
"""A script without any of these words needs no helper."""
PACKAGE_FILES = ("setup.py", "setup.cfg", "pyproject.toml")
"""Files of a project that is installed as a package; there the helper is written into the package."""


def is_helper(data: bytes) -> bool:
    return HELPER_MARK in data[:1000]


def plan_helpers(walk: Walk, texts: Iterable[tuple[str, bytes]]) -> dict[str, tuple[str, str]]:
    """Return, for each script that may need the helper, the helper's dotted name and file."""
    contents = dict(texts)
    name = find_free_name(walk, contents)
    is_installed = any(path in PACKAGE_FILES for path in (*walk.scripts, *walk.other_files))
    tree = ScriptTree(set(walk.scripts), {path: set(list_absolute_imports(data)) for path, data in contents.items()})
    helpers = {}
    for path in (path for path, data in contents.items() if DEVICE_TERMS.search(data)):
        root, package = tree.find_import_root(path)
        if is_installed and package:
            helpers[path] = f"{package}.{name}", str(root / package / f"{name}.py")
        else:
            helpers[path] = name, str(root / f"{name}.py")
    return helpers


def find_free_name(walk: Walk, contents: dict[str, bytes]) -> str:
    """Return `accelerator_device`, with a number if another file or folder of the project has this name."""
    used_names = {
        PurePosixPath(path).with_suffix("").name
        for path in (*walk.folders, *walk.links, *walk.other_files, *walk.excluded)
    }
    used_names |= {PurePosixPath(path).stem for path, data in contents.items() if not is_helper(data)}
    if walk.is_single_script:
        used_names |= {Path(entry).stem for entry in os.listdir(walk.root) if not is_helper_file(walk.root / entry)}
    name, number = HELPER_MODULE, 2
    while name in used_names:
        name, number = f"{HELPER_MODULE}_{number}", number + 1
    return name


def is_helper_file(path: Path) -> bool:
    return path.stem.startswith(HELPER_MODULE) and path.is_file() and is_helper(path.read_bytes())


def list_absolute_imports(data: bytes) -> Iterator[str]:
    """Yield the dotted names that a text imports, without relative imports; for `from a import b` both a and a.b."""
    for dots, module, members in scan_statements(data) if b"import" in data else ():
        if not dots:
            yield from (module, *(f"{module}.{member}" for member in members))


@dataclass
class ScriptTree:
    """Scripts of a project and their imports."""

    scripts: set[str]
    imported: dict[str, set[str]]  # script -> dotted names that it imports

    def __post_init__(self) -> None:
        self.all_imported = set().union(*self.imported.values())
        self.modules = {PurePosixPath(path).with_suffix("") for path in self.scripts}
        self.importable = self.modules | {folder for module in self.modules for folder in module.parents}

    def find_import_root(self, path: str) -> tuple[PurePosixPath, str]:
        """Return the folder in which a script's imports are looked up, and the script's top-level package or ""."""
        folder = PurePosixPath(path).parent
        package_root = folder
        while str(package_root / "__init__.py") in self.scripts and package_root != package_root.parent:
            package_root = package_root.parent
        if folder != package_root:
            return package_root, folder.relative_to(package_root).parts[0]
        roots = [*self.find_roots_of_imports(path, folder), *self.find_roots_of_importers(path)]
        return min(roots, key=lambda root: len(root.parts), default=folder), ""

    def find_roots_of_imports(self, path: str, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """Yield, for each import of a script, the innermost folder around it that contains the imported module."""
        for name in self.imported.get(path, ()):
            first = name.partition(".")[0]
            yield from [root for root in (folder, *folder.parents) if root / first in self.importable][:1]

    def find_roots_of_importers(self, path: str) -> Iterator[PurePosixPath]:
        """Yield the folder in which other scripts look this one up: for `from lib.engine import run` that of `lib`."""
        parts = PurePosixPath(path).with_suffix("").parts
        for cut in range(len(parts) - 1):
            if ".".join(parts[cut:]) in self.all_imported:
                yield PurePosixPath(*parts[:cut])
                return
