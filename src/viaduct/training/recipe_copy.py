"""The recipe file of the user's own that a run keeps, with the modules beside it that the recipe imports.

RUN/recipe.py                   the file
RUN/recipe_modules/layers.py    a module from the same folder, of those that were imported
RUN/recipe.json                 "files": each of them with its SHA-256

Evaluating or continuing a run executes these copies and no other file: recipe.json may come from anybody, and a path in
it is never followed. A copy that is a link out of the run, or whose bytes are not those of the checksum, is refused.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from viaduct.errors import BadRun
from viaduct.recipes import Loaded, load_file
from viaduct.terminal import escape_controls
from viaduct.training.output_streams import print_line

RECIPE, MODULES = "recipe.py", "recipe_modules"
LONGEST = 16 << 20  # bytes of one source file


def keep_copy(run: Path, file: Path) -> dict[str, str]:
    """Copy a recipe file and the modules that it imported from its folder into the run; return their checksums."""
    shutil.rmtree(run / MODULES, ignore_errors=True)
    sources = {RECIPE: file, **{f"{MODULES}/{name}": path for name, path in imported_beside(file).items()}}
    checksums = {}
    for name, source in sources.items():
        content = source.read_bytes()
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)  # never through a link
        (run / name).write_bytes(content)
        checksums[name] = hashlib.sha256(content).hexdigest()
    return checksums


def imported_beside(file: Path) -> dict[str, Path]:
    """Return the modules of the recipe's folder that are loaded now, by their path in it."""
    folder = file.parent
    if folder.name in ("site-packages", "dist-packages"):
        return {}
    tops = {entry.name.removesuffix(".py") for entry in folder.iterdir()} - {"viaduct"}
    found = {}
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if name.partition(".")[0] not in tops or not isinstance(origin, str):
            continue
        stem = name.replace(".", "/")
        for relative in (f"{stem}.py", f"{stem}/__init__.py"):
            path = folder / relative
            if path != file and path.is_file() and os.path.samefile(path, origin):
                found[relative] = path
    return found


def changed_files(run: Path, checksums: Mapping[str, str], file: Path) -> Iterator[Path]:
    """Yield the originals that are there and are not what the run has copies of."""
    for name in [RECIPE, *checksums]:
        original = file if name == RECIPE else file.parent / name.removeprefix(f"{MODULES}/")
        if original.is_file() and (run / name).is_file() and original.read_bytes() != (run / name).read_bytes():
            yield original


def load_copy(run: Path, record: Mapping[str, Any]) -> Loaded:
    """Execute the run's copy of its recipe, which is said to the user, and return the recipe."""
    checksums = read_checksums(run, record)
    sources = {name: read_inside(run, name, checksums.get(name)) for name in [RECIPE, *checksums]}
    modules = Modules(run, {name: source for name, source in sources.items() if name != RECIPE})
    if os.environ.get("RANK", "0") == "0":
        beside = f", with {len(modules.files)} of {run / MODULES}" if modules.files else ""
        print_line(f"Executing {run / RECIPE}, the recipe that this run keeps{beside}.", sys.stderr)
    path = (run / RECIPE).resolve()
    name = f"viaduct_recipe_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    with modules.importable():
        return load_file(path, FixedSource(str(path), sources[RECIPE]), name)


def read_checksums(run: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Return what recipe.json says of the copies; runs that were begun before it did have one file and no checksum."""
    checksums = record.get("files", {})
    if not isinstance(checksums, dict) or not all(
        isinstance(name, str) and isinstance(checksum, str) for name, checksum in checksums.items()
    ):
        raise BadRun(f"{run / 'recipe.json'} is damaged: its list of files is not one.")
    for name in checksums:
        parts = name.split("/")
        named = name == RECIPE or (
            len(parts) > 1
            and parts[0] == MODULES
            and name.endswith(".py")
            and all(part.removesuffix(".py").isidentifier() for part in parts[1:])
        )
        if not named:
            raise BadRun(
                f"{run / 'recipe.json'} names a file that no run keeps: {escape_controls(name)[:80]!r}.",
                f"Only {RECIPE} and modules in {MODULES}/ of the run itself are ever executed.",
            )
    return checksums


def read_inside(run: Path, name: str, checksum: str | None) -> bytes:
    """Return the bytes of a file of the run, which is no link out of it and has not changed."""
    path = run / name
    if not path.resolve().is_relative_to(run.resolve()):
        raise BadRun(
            f"{path} is a link to {path.resolve()}, outside of the run; it is not executed.",
            "A run executes its own copy of a recipe only: put the file itself there.",
        )
    if not path.is_file():
        raise BadRun(
            f"{path} is missing: the run was trained with a recipe file of its own.",
            f"`viaduct train FILE --run {run}` and `viaduct evaluate {run} --recipe FILE` take the original.",
        )
    if path.stat().st_size > LONGEST:
        raise BadRun(f"{path} has {path.stat().st_size:,} bytes; no recipe has so many.")
    content = path.read_bytes()
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        raise BadRun(
            f"{path} has changed since the run was begun with it (checksum); it is not executed.",
            f"Restore it; or name the file to execute: `viaduct evaluate {run} --recipe FILE`.",
        )
    return content


class FixedSource(importlib.abc.SourceLoader):
    """Loads a module from bytes that were checked; compiled files beside it are neither read nor written."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        if os.fsdecode(path) != self.path:
            raise OSError(f"{os.fsdecode(path)} is not read")
        return self.source


class Modules(importlib.abc.MetaPathFinder):
    """The copied modules, importable under the names that they had beside the recipe."""

    def __init__(self, run: Path, sources: Mapping[str, bytes]) -> None:
        self.files: dict[str, FixedSource] = {}
        self.packages: set[str] = set()
        for relative, source in sources.items():
            stem = relative.removeprefix(f"{MODULES}/").removesuffix(".py")
            name = stem.removesuffix("/__init__").replace("/", ".")
            self.files[name] = FixedSource(str((run / relative).resolve()), source)
            if stem.endswith("/__init__"):
                self.packages.add(name)
            while "." in name:
                name = name.rpartition(".")[0]
                self.packages.add(name)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.files:
            loader = self.files[fullname]
            spec = importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
        elif fullname in self.packages:  # a folder without __init__.py
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        else:
            return None
        if spec is not None and fullname in self.packages:
            spec.submodule_search_locations = []  # what is not in the list is not looked for in the folder
        return spec

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Let the recipe import them, also later; modules of the same names that others have loaded stay theirs."""
        if not self.files:
            yield
            return
        others: dict[str, ModuleType] = {}
        for name in {*self.files, *self.packages} & set(sys.modules):
            others[name] = sys.modules.pop(name)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.modules.update(others)
