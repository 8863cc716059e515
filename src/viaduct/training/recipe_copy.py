"""A run's copy of the user's recipe file, and of the modules that the recipe imports from its own folder.

    RUN/recipe.py                   copy of the recipe file
    RUN/recipe_modules/layers.py    copy of a module from the recipe file's folder, if the recipe has imported it
    RUN/recipe.json                 "files": the SHA-256 of each copy

`load_copy` executes these copies and never follows a path in recipe.json, which a stranger may have written. It refuses
a copy that is a link out of the run, or does not have the recorded checksum.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from viaduct.errors import BadRun
from viaduct.recipes import LoadedRecipe, load_file
from viaduct.terminal import escape_controls
from viaduct.training.output_streams import print_note

RECIPE_FILE, MODULES_FOLDER = "recipe.py", "recipe_modules"
MAX_SOURCE_BYTES = 16 << 20


def copy_recipe_files(run: Path, file: Path) -> dict[str, str]:
    """Copy a recipe file and the modules that it imported from its folder into the run.

    Return the SHA-256 of each copy by its path in the run.
    """
    shutil.rmtree(run / MODULES_FOLDER, ignore_errors=True)
    sources = {
        RECIPE_FILE: file,
        **{f"{MODULES_FOLDER}/{name}": path for name, path in find_imported_modules(file).items()},
    }
    checksums = {}
    for name, source in sources.items():
        content = source.read_bytes()
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)  # so that nothing is written through a link
        (run / name).write_bytes(content)
        checksums[name] = hashlib.sha256(content).hexdigest()
    return checksums


def find_imported_modules(file: Path) -> dict[str, Path]:
    """Return the files of loaded modules that lie in the recipe's folder, by their path in the folder.

    Return none for a recipe file in site-packages, because the modules beside it are installed packages.
    """
    folder = file.parent
    if folder.name in ("site-packages", "dist-packages"):
        return {}
    top_names = {entry.name.removesuffix(".py") for entry in folder.iterdir()} - {"viaduct"}
    sources = {}
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if name.partition(".")[0] not in top_names or not isinstance(origin, str):
            continue
        stem = name.replace(".", "/")
        for relative in (f"{stem}.py", f"{stem}/__init__.py"):
            path = folder / relative
            if path != file and path.is_file() and os.path.samefile(path, origin):
                sources[relative] = path
    return sources


def find_changed_files(run: Path, checksums: Mapping[str, str], file: Path) -> Iterator[Path]:
    """Yield the original files that differ from the run's copies; missing originals and copies are skipped."""
    for name in [RECIPE_FILE, *checksums]:
        original = file if name == RECIPE_FILE else file.parent / name.removeprefix(f"{MODULES_FOLDER}/")
        if original.is_file() and (run / name).is_file() and original.read_bytes() != (run / name).read_bytes():
            yield original


def load_copy(run: Path, record: Mapping[str, Any]) -> LoadedRecipe:
    """Execute the run's copy of its recipe and return the recipe; rank 0 prints the path of the file.

    Raise BadRun if `read_checked` refuses a copy, or if recipe.json lists files that no run keeps.
    """
    checksums = read_checksums(run, record)
    sources = {name: read_checked(run, name, checksums.get(name)) for name in [RECIPE_FILE, *checksums]}
    modules = CopiedModules(run, {name: source for name, source in sources.items() if name != RECIPE_FILE})
    if os.environ.get("RANK", "0") == "0":
        count = len(modules.loaders)
        extra = f", with {count} module{'s' * (count > 1)} from {run / MODULES_FOLDER}" if count else ""
        print_note(f"Executing {run / RECIPE_FILE}, the run's copy of its recipe{extra}.")
    path = (run / RECIPE_FILE).resolve()
    name = f"viaduct_recipe_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    with modules.intercept_imports():
        return load_file(path, FixedSource(str(path), sources[RECIPE_FILE]), name)


def read_checksums(run: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums in recipe.json (`record`), by the copies' paths in the run.

    Return none for runs of earlier versions, which copied only recipe.py and recorded no checksum. Raise BadRun if the
    entry "files" is malformed, or has a path that `copy_recipe_files` does not write.
    """
    checksums = record.get("files", {})
    if not isinstance(checksums, dict) or not all(isinstance(text, str) for item in checksums.items() for text in item):
        raise BadRun(f'{run / "recipe.json"} is damaged: its "files" must map file names to checksums.')
    for name in checksums:
        parts = name.split("/")
        is_allowed = name == RECIPE_FILE or (
            len(parts) > 1
            and parts[0] == MODULES_FOLDER
            and name.endswith(".py")
            and all(part.removesuffix(".py").isidentifier() for part in parts[1:])
        )
        if not is_allowed:
            raise BadRun(
                f"{run / 'recipe.json'} names a file that no run keeps: {escape_controls(name)[:80]!r}.",
                f"Only the run's own {RECIPE_FILE} and the modules in its {MODULES_FOLDER}/ are executed.",
            )
    return checksums


def read_checked(run: Path, name: str, checksum: str | None) -> bytes:
    """Return the bytes of a file of the run; the checksum is None in runs of earlier versions.

    Raise BadRun if the file is missing, a link out of the run, larger than MAX_SOURCE_BYTES, or has another checksum.
    """
    path, shown = run / name, shlex.quote(str(run))
    if not path.resolve().is_relative_to(run.resolve()):
        message = f"{path} is a link to {path.resolve()}, outside of the run; it is not executed."
        raise BadRun(message, "A run executes only files inside its directory: replace the link by the file itself.")
    if not path.is_file():
        raise BadRun(
            f"{path} is missing: the run was trained with a user's recipe file, and this is the run's copy of it.",
            f"`viaduct train FILE --run {shown}` and `viaduct evaluate {shown} --recipe FILE` take the original.",
        )
    if (size := path.stat().st_size) > MAX_SOURCE_BYTES:
        raise BadRun(f"{path} has {size:,} bytes; a source file of a recipe may have {MAX_SOURCE_BYTES:,}.")
    content = path.read_bytes()
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        message = f"{path} has changed since the run was begun with it (checksum); it is not executed."
        raise BadRun(message, f"Restore it; or name the file to execute: `viaduct evaluate {shown} --recipe FILE`.")
    return content


class FixedSource(importlib.abc.SourceLoader):
    """Loads a module from checked bytes; .pyc files are neither read nor written."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        if os.fsdecode(path) != self.path:
            raise OSError(f"{os.fsdecode(path)} is not read")  # Python then compiles the source
        return self.source


class CopiedModules(importlib.abc.MetaPathFinder):
    """Finder of the copied modules, under the names that they had beside the recipe file."""

    def __init__(self, run: Path, sources: Mapping[str, bytes]) -> None:
        self.loaders: dict[str, FixedSource] = {}  # by module name
        self.packages: set[str] = set()
        for relative, source in sources.items():
            stem = relative.removeprefix(f"{MODULES_FOLDER}/").removesuffix(".py")
            name = stem.removesuffix("/__init__").replace("/", ".")
            self.loaders[name] = FixedSource(str((run / relative).resolve()), source)
            if stem.endswith("/__init__"):
                self.packages.add(name)
            while "." in name:
                name = name.rpartition(".")[0]
                self.packages.add(name)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.loaders:
            loader = self.loaders[fullname]
            spec = importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
        elif fullname in self.packages:  # a folder without __init__.py
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        else:
            return None
        if spec is not None and fullname in self.packages:
            spec.submodule_search_locations = []  # a submodule without a checked copy is not searched on the disk
        return spec

    @contextmanager
    def intercept_imports(self) -> Iterator[None]:
        """Let imports within the block find the copies, even if a module of the same name is loaded already.

        Afterwards sys.modules has the earlier modules again. The finder stays in sys.meta_path for functions of the
        recipe that import when they are called.
        """
        if not self.loaders:
            yield
            return
        shadowed = {*self.loaders, *self.packages} & set(sys.modules)
        earlier: dict[str, ModuleType] = {name: sys.modules.pop(name) for name in shadowed}
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.modules.update(earlier)
