"""Facts about a script before it runs: its files, framework and missing packages.

Files are read as text; nothing is imported. A package counts as missing only if its import is unconditional: at the top
level of a file that the script reaches or in a `with` block there, but not in a `try`, an `if` or a function.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from viaduct.cards import NPU, PLUGINS
from viaduct.errors import BadValue
from viaduct.extras import EXTRAS, PYTHON_WITHOUT_TENSORFLOW, is_installed
from viaduct.path_errors import refuse_special_file
from viaduct.rehearsal.plan import FrameworkName
from viaduct.scripts import notebook_runs

# Stage of a script by the package that it imports. A stage is the folder of stand-ins for one framework: torch_stage/
# or tf1_stage/.
FRAMEWORK_OF_PACKAGE: dict[str, FrameworkName] = {
    **dict.fromkeys(("torch", "torchvision", *PLUGINS), "torch"),  # torch_npu, torch_mlu
    **dict.fromkeys(("tensorflow", "keras", *NPU.tensorflow_modules), "tf1"),  # npu_bridge, hccl
}
STAND_IN_PACKAGES = {*PLUGINS, *NPU.tensorflow_modules, "horovod", "npu_device"}  # packages that a stage replaces
PYPI_NAMES = {  # of packages that are imported under another name
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "absl": "absl-py",
    "tf_slim": "tf-slim",
    "dateutil": "python-dateutil",
    "bs4": "beautifulsoup4",
    "attr": "attrs",
    "mpl_toolkits": "matplotlib",
}
PYPI_HINTS = {  # on packages that `pip install NAME` does not provide
    "apex": "PyPI's apex is another package: use torch.amp, or the card vendor's apex.",
    "google": "Several packages are imported as google: google.protobuf is PyPI's protobuf.",
}
PROJECT_MARKS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")  # entries of a project's top folder
MAX_FILES = 2000  # files of a project that are read
MAX_NAME_LENGTH = 255  # characters of a string that may be a file's name


@dataclass(frozen=True)
class Import:
    """A module that a file imports."""

    module: str
    line: int
    is_unconditional: bool  # the import statement runs whenever the file is executed


@dataclass
class Source:
    """One file of the project."""

    path: Path
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)


@dataclass
class Project:
    """A script and the files of its project that it reaches."""

    script: Path
    sources: list[Source]
    folders: list[Path] = field(default_factory=list)  # in which modules were found, without the script's folder

    @property
    def root(self) -> Path:
        """Return the innermost folder that holds the script, its modules' folders and all files that were read."""
        source_folders = [source.path.parent for source in self.sources]
        return Path(os.path.commonpath([self.script.parent, *self.folders, *source_folders]))

    def list_imported_packages(self) -> set[str]:
        return {statement.module.partition(".")[0] for source in self.sources for statement in source.imports}


def read_project(script: Path) -> Project:
    """Read a script and the files of its project that it imports or names in a string, directly or not.

    Files other than the script are left out if they cannot be read, and all after the first MAX_FILES.
    """
    sources: dict[Path, Source] = {}
    search = ModuleSearch(script)
    waiting = [script]
    while waiting and len(sources) < MAX_FILES:
        path = waiting.pop()
        if path in sources or (source := read_source(path, path == script)) is None:
            continue
        sources[path] = source
        waiting += [file for statement in source.imports for file in search.find(statement.module)]
        waiting += [*find_relative_files(source), *find_started_files(source)]
    return Project(script, list(sources.values()), sorted(search.used))


def find_module_file(name: str) -> Path:
    """Return the file that `python -m NAME` runs here, without importing anything; raise BadValue if there is none."""
    on_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadValue(f"{name!r} is no module's name.", "Write -m pkg.train, as for Python, or a file without -m.")
    for folder in (os.getcwd(), *on_path):
        base = Path(os.path.abspath(folder)).joinpath(*name.split("."))
        for path in (base / "__main__.py", base.with_suffix(".py")):
            if path.is_file():
                return path.resolve()
    if any(Path(folder, *name.split(".")).is_dir() for folder in (".", *on_path)):
        raise BadValue(f"{name!r} is a package without __main__.py.", "Name a module of it.")
    raise BadValue(f"there is no module {name!r} here or on PYTHONPATH.", "Modules are searched as by `python -m`.")


class ModuleSearch:
    """Search for a script's modules in the folders of the usual project layouts.

    `self.folders` are the script's folder, the folder that holds its outermost package, those on PYTHONPATH, the
    current folder, the folders above the package up to the project's top folder, and `src` in each of them. A module
    that is in none of these, and is not installed, is searched in `self.subfolders`: the folders directly below the
    script's, the package's and the top folder, which a script may put on `sys.path`. Folders outside of the project's
    top folder are not searched.
    """

    def __init__(self, script: Path) -> None:
        self.script = script
        self.used: set[Path] = set()  # folders in which modules were found, without the script's folder
        package = script.parent  # becomes the folder that holds the outermost package around the script
        while (package / "__init__.py").is_file() and package.parent != package:
            package = package.parent
        self.package = package
        self.top = find_project_folder(script)
        above = [folder for folder in (package, *package.parents) if folder.is_relative_to(self.top)]
        on_path = [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        candidates = [script.parent, package, *on_path, Path.cwd().resolve(), *above]
        searched = [folder for folder in candidates if folder.is_relative_to(self.top)]
        self.folders = [*dict.fromkeys(path for folder in searched for path in (folder, folder / "src"))]

    def find(self, module: str) -> list[Path]:
        """Return the project's files that run when a module is imported."""
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names:
            return []
        files = self._find_in(module, self.folders)
        if files or top in STAND_IN_PACKAGES or top in FRAMEWORK_OF_PACKAGE or is_installed(top):
            return files
        return self._find_in(module, self.subfolders)

    def _find_in(self, module: str, folders: list[Path]) -> list[Path]:
        """Return a module's files in the first folder that has it, and note that folder as used."""
        for folder in folders:
            if files := list(find_local_files(module, folder)):
                if folder != self.script.parent:
                    self.used.add(folder)
                return files
        return []

    @functools.cached_property
    def subfolders(self) -> list[Path]:
        """Return the folders directly below the script's, the package's and the top folder."""
        parents = dict.fromkeys([self.script.parent, self.package, self.top])
        return [path for folder in parents for path in sorted(list_subfolders(folder))]


def find_project_folder(script: Path) -> Path:
    """Return the innermost folder above a script with one of PROJECT_MARKS, else the current folder or the script's."""
    for folder in script.parents:
        if any((folder / name).exists() for name in PROJECT_MARKS):
            return folder
    current = Path.cwd().resolve()
    return current if script.is_relative_to(current) else script.parent


def list_subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are neither hidden nor links; an empty list if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError:
        return []


def read_source(path: Path, required: bool) -> Source | None:
    """Read and parse a script or notebook; if it cannot be read, return None, or with `required` raise BadValue."""
    try:
        refuse_special_file(path)
        tree = ast.parse(notebook_runs.read_source(path, path.read_bytes()), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        if required:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadValue(f"{str(path)!r} is not a Python script that can be read: {reason}.") from None
        return None
    return Source(path, tree, list(find_imports(tree)))


def find_imports(tree: ast.Module) -> Iterator[Import]:
    """Yield the absolute imports of a file.

    For `from x import y` these are x and x.y, which need not be a module; x.y never counts as unconditional.
    """
    unconditional = set(map(id, iterate_unconditional_statements(tree.body)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, id(node) in unconditional) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield Import(node.module, node.lineno, id(node) in unconditional)
            yield from (Import(f"{node.module}.{alias.name}", node.lineno, False) for alias in node.names)


def iterate_unconditional_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top level of a file, and those inside `with` blocks there."""
    for node in body:
        yield node
        if isinstance(node, ast.With):
            yield from iterate_unconditional_statements(node.body)


def find_local_files(module: str, folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that run when a module is imported: those of its packages and its own."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        base = folder.joinpath(*parts[:count])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                yield path


def find_relative_files(source: Source) -> Iterator[Path]:
    """Yield the files that relative imports refer to."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(source.path.parents):
            folder = source.path.parents[node.level - 1]
            prefix = f"{node.module}." if node.module else ""
            for alias in node.names:
                yield from find_local_files(prefix + alias.name, folder)


def find_started_files(source: Source) -> Iterator[Path]:
    """Yield scripts that a file names in a string ("train.py"), relative to its folder or the current one.

    The file may start them by a command.
    """
    for name in find_strings(source.tree):
        if name.endswith(".py") and len(name) < MAX_NAME_LENGTH:
            for folder in (source.path.parent, Path.cwd()):
                if (path := folder / name).is_file():
                    yield path.resolve()


def get_unqualified_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; "" for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def find_strings(tree: ast.AST) -> Iterator[str]:
    """Yield the string constants in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def list_relative_sources(project: Project, root: Path) -> dict[str, Path]:
    """Return the project's Python files by their paths relative to `root`; files outside of it by their names."""
    paths = [source.path.resolve() for source in project.sources]
    folder = root.resolve()
    return {(path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name): path for path in paths}


# ---- the stage of a script


def find_framework(project: Project) -> FrameworkName:
    """Return the stage of a script by its unconditional imports, else by those of its project's files, else by all.

    If both frameworks are imported, the stage is torch if the project calls `backward`, else tf1. Raise BadValue if
    none is imported.
    """
    script = [source for source in project.sources if source.path == project.script]
    for imports in (find_imported_frameworks(script), find_imported_frameworks(project.sources)):
        if len(imports) == 1:
            return imports.pop()
    stages = {FRAMEWORK_OF_PACKAGE[name] for name in project.list_imported_packages() if name in FRAMEWORK_OF_PACKAGE}
    if not stages:
        raise BadValue(
            f"{project.script.name} and the files that it was found to use import neither torch nor tensorflow.",
            "Name the script that trains, or give its framework: --framework torch or --framework tf1.",
        )
    if len(stages) == 1:
        return stages.pop()
    calls = (node for source in project.sources for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return "torch" if any(get_unqualified_name(call.func) == "backward" for call in calls) else "tf1"


def find_imported_frameworks(sources: list[Source]) -> set[FrameworkName]:
    """Return the stages of the frameworks that these files import unconditionally."""
    imports = (statement for source in sources for statement in source.imports)
    packages = {statement.module.partition(".")[0] for statement in imports if statement.is_unconditional}
    return {FRAMEWORK_OF_PACKAGE[package] for package in packages if package in FRAMEWORK_OF_PACKAGE}


# ---- missing packages


def refuse_missing_packages(project: Project) -> None:
    """Raise BadValue, with the pip command, if packages that the project imports unconditionally are not installed."""
    missing: dict[str, str] = {}
    folders = [project.script.parent, *project.folders]
    for source in project.sources:
        for statement in source.imports:
            top = statement.module.partition(".")[0]
            if statement.is_unconditional and top not in missing and not is_package_available(top, folders):
                missing[top] = f"{source.path.name}:{statement.line}"
    if missing:
        listed = ", ".join(f"{name} ({location})" for name, location in missing.items())
        raise BadValue(f"not installed here, though the script imports it: {listed}.", make_install_advice(missing))


def is_package_available(top: str, folders: list[Path]) -> bool:
    """Return True if a package is in the standard library, provided by a stage, in one of the folders or installed."""
    if top in sys.stdlib_module_names or top in STAND_IN_PACKAGES:
        return True
    if any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in folders):
        return True
    return is_installed(top)


def make_install_advice(names: Collection[str]) -> str:
    """Return the command that installs missing packages, with hints on those that it cannot install (PYPI_HINTS).

    A hint is also returned if this Python is too new for TensorFlow.
    """
    hints = [PYPI_HINTS[name] for name in names if name in PYPI_HINTS]
    if "tensorflow" in names and sys.version_info >= PYTHON_WITHOUT_TENSORFLOW:
        hints.append("TensorFlow 2.15 needs Python 3.11 or older.")
    on_pypi = [name for name in names if name not in PYPI_HINTS]
    packages = {f"'viaduct[{EXTRAS[name]}]'" if name in EXTRAS else PYPI_NAMES.get(name, name) for name in on_pypi}
    return " ".join([*(["pip install " + " ".join(sorted(packages))] if packages else []), *hints])
