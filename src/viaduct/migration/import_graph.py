"""Import graph of a project, and its programs: sets of files that run together.

Nothing is imported; dotted names are matched with files. A script imports modules of its folder without the folder's
name, and a project may be a folder of a larger package. So a name is looked up relative to the importing file's folder,
then as written, then without its first parts, then as the end of a longer name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from viaduct.cards import NPU
from viaduct.cards.packages import HOST_PACKAGES, PACKAGES
from viaduct.migration.frameworks import PYTORCH_COMPANIONS, PYTORCH_ROOTS, TENSORFLOW_ROOTS
from viaduct.migration.project import Project
from viaduct.migration.reexports import find_by_ending

LIBRARIES = {
    *sys.stdlib_module_names,
    "tensorflow", "torch", "keras", "horovod", "numpy", "absl",
    *NPU.tensorflow_modules,
    *PYTORCH_COMPANIONS,
}  # fmt: skip
"""Top-level modules of libraries. A name in them is no file of the project, except one with exactly this name."""
# Of PYTORCH_COMPANIONS, those that rules know and those that leave the device to the caller; others may choose it.
KNOWN_COMPANIONS = {
    "torchvision", "torchaudio", "torchtext", "torchmetrics", "torchdata", "kornia", "segmentation_models_pytorch",
    "timm", "transformers", "peft", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric",
}  # fmt: skip
KNOWN_PACKAGES = {
    *(LIBRARIES - PYTORCH_COMPANIONS),
    *KNOWN_COMPANIONS,
    *PYTORCH_ROOTS,
    *TENSORFLOW_ROOTS,
    *HOST_PACKAGES,
    *(name.partition(".")[0] for package in PACKAGES for name in package.imports),
}
"""Packages that rules know, and packages that choose no device."""
IMPORT_STATEMENT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\((?:[^)#]|#[^\n]*\n)*\)|[^\n#;]+)"
    rb"|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
"""`from DOTS MODULE import NAMES`, the names in parentheses or on one line; or `import MODULES`."""


class Modules:
    """Files of a project by their dotted names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = {Project.module_of(path)[0]: path for path in paths}
        self.by_last_name: dict[str, list[str]] = {}  # last part of a name -> names
        for name in self.paths:
            self.by_last_name.setdefault(name.rpartition(".")[2], []).append(name)

    def find(self, name: str, importer: str) -> str | None:
        """Return the file for a dotted name in the file `importer`; None if it is not a file of the project."""
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
        return self.paths.get(find_by_ending(name, self.by_last_name) or "")

    def find_all(self, names: Iterable[str], importer: str) -> set[str]:
        """Return the files of these modules, without the importer itself."""
        files = (self.find(name, importer) for name in names)
        return {path for path in files if path is not None} - {importer}


def list_other_packages(imports: Mapping[str, Iterable[str]], modules: Modules) -> set[str]:
    """Return the packages that are imported but belong neither to the project nor to those that viaduct knows.

    `imports`: file -> dotted names that it imports.
    """
    others = set()
    for path, names in imports.items():
        for name in names:
            package = name.partition(".")[0]
            if package not in KNOWN_PACKAGES and modules.find(name, path) is None:
                others.add(package)
    return others


def scan_statements(data: bytes) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (number of leading dots, module, imported names) of each import, found without parsing the text."""
    for dots, module, names, modules in IMPORT_STATEMENT.findall(data):
        if modules:
            yield from ((0, item.split()[0], []) for item in modules.decode().split(",") if item.strip())
        else:
            listed = re.sub(rb"#[^\n]*", b"", names).decode(errors="replace")
            yield len(dots), module.decode(), re.findall(r"(?:^|[(,])\s*(\w+)", listed)


def scan_imports(data: bytes, path: str) -> Iterator[str]:
    """Yield the absolute dotted names that the text of a file imports; for `from a import b` both a and a.b."""
    own_module, is_package = Project.module_of(path)
    parts = own_module.split(".") if own_module else []
    for dots, name, members in scan_statements(data):
        package = parts[: len(parts) - dots + is_package] if dots else []
        module = ".".join([*package, *([name] if name else [])])
        if module:
            yield module
        yield from (f"{module}.{member}" if module else member for member in members)


def find_programs(project: Project, path: str) -> list[set[str]]:
    """Return the programs that a file can be part of, each as the set of its files.

    A program is a file that no other file imports, and all files that it imports. In a cycle of imports, each file may
    start a program.
    """
    importers = project.all_importers(path)
    roots = [importer for importer in importers if not project.importers.get(importer)]
    return [project.all_imports(root) for root in sorted(roots or importers)]


def list_program_escapes(project: Project, path: str) -> list[str]:
    """Return lines (`file:line`) of a file's programs that pass Horovod to code that the analysis cannot follow."""
    if not project.horovod_escapes:
        return []
    files = set[str]().union(*find_programs(project, path)) & project.horovod_escapes.keys()
    return [f"{file}:{line}" for file in sorted(files) for line in sorted(project.horovod_escapes[file])]
