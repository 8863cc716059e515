"""Makes a process import the project's modules from its own tree, and records the project files that it executes.

`viaduct carry` compares two trees, the original and the migrated project (`trees.py`). A process runs one of them, its
own. A file's position is its path within a tree; its counterpart is the file at the same position in the own tree. An
overlay or a mirror shows the own tree's files at other paths, usually the original's: their visible paths.

In the record folder modules.jsonl has a line for each file: {"name": "lib.net", "file": …, "position": "lib/net.py",
"tree": "own", "sha256": …, "from_file": true, "pid": …}. `name` is that of the imported module, "" if it is not known;
`tree` is "own", "other" (a tree that the process must not import from) or "outside" (no tree); the hash is that of the
file's bytes. Bytecode caches of the own tree are not read, since they may be stale. Code that `OwnLoader` did not load
(`exec`, another loader, bytecode without source) is compared with its compiled file; `from_file` is false where the two
differ. Text given to exec() is recorded only if it equals a Python file of the project that the script opened (one of
the first MAX_REMEMBERED).
"""

from __future__ import annotations
import __future__

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from viaduct.rehearsal import counters, trees
from viaduct.rehearsal.counters import Counters, compile_plain
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.trees import Trees
from viaduct.rehearsal.wrapping import wrap
from viaduct.scripts.notebook_runs import read_source
from viaduct.scripts.runner import Script

MODULES_FILE = "modules.jsonl"
MAX_REMEMBERED = 64  # remembered Python files that the script reads; their text may be passed to exec()
GENERATED_MARK = "__autograph_generated_file"  # in the names of files that TensorFlow generates from recorded functions
# Compiler flags of all `from __future__ import …`.
FUTURE_FLAGS = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_installed: list[Recorder] = []  # the recorder of this process; empty until `install`


def install(plan: Plan) -> None:
    """Begin to record in this process and its forks; do nothing if no two trees are compared."""
    compared = trees.make_trees(plan)
    if compared is None or _installed:
        return
    recorder = Recorder(plan, compared)
    _installed.append(recorder)
    finder = OwnTreeFinder(recorder)
    sys.meta_path.insert(0, finder)
    wrap_spec_from_file(finder)
    sys.path[:] = [compared.find_counterpart(entry) if entry else entry for entry in sys.path]
    wrap_run_path(recorder)
    sys.addaudithook(recorder.audit)


def find_installed() -> Recorder | None:
    """Return the recorder of this process; None where none was installed."""
    return _installed[0] if _installed else None


def compile_recorded(script: Script) -> Script:
    """Return a script compiled by this process's recorder; without a recorder the script is unchanged.

    The recorder records the file and counts how often changed lines run. The script's `file` becomes its visible path.
    """
    recorder = find_installed()
    if recorder is None:
        return script
    code = recorder.compile_file(script.file.read_bytes(), str(script.file), "__main__")
    return replace(script, code=code, file=Path(recorder.trees.find_visible_path(str(script.file))))


class Recorder:
    """Compiles the project's files and records the files that are executed."""

    def __init__(self, plan: Plan, compared: Trees) -> None:
        self.trees = compared
        self._path = Path(plan.record_folder) / MODULES_FILE
        self._counters = (
            Counters(plan.record_folder) if (Path(plan.record_folder) / counters.CHANGED_SPANS_FILE).exists() else None
        )
        self._compiled: dict[int, CodeType] = {}  # code that `compile_file` returned, by id
        self._recorded: set[tuple[Any, ...]] = set()  # the keys of `record`
        self._opened: dict[str, tuple[bytes, CodeType]] = {}  # content and code of the files that the script read
        self._state = threading.local()  # `.busy`: this thread runs the audit hook, or viaduct reads a file

    def compile_file(self, data: bytes, path: str, name: str) -> CodeType:
        """Compile the bytes of a project's file and record them; `name` is the module's, "" if it is not known."""
        position = self.trees.find_position(path)
        source = read_source(path, data)
        code = self._counters.compile(source, path, position) if self._counters else compile_plain(source, path)
        self._compiled[id(code)] = code
        self.record(name, path, hashlib.sha256(data).hexdigest(), from_file=True)
        return code

    def record(self, name: str, path: str, digest: str, from_file: bool) -> None:
        """Record a file that was executed, once for each process and content.

        Files of installed packages, of the standard library and of viaduct are not recorded.
        """
        tree = self.trees.find_tree(path)
        key = (os.getpid(), path, digest, from_file)
        if tree is None or key in self._recorded:
            return
        self._recorded.add(key)
        position = self.trees.find_position(path)
        entry = {"name": name, "file": path, "position": position, "tree": tree, "sha256": digest}
        line = json.dumps({**entry, "from_file": from_file, "pid": os.getpid()}) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, line.encode("utf-8", "surrogateescape"))
        finally:
            os.close(file)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Audit hook: examine code that OwnLoader did not load, and remember Python files that are opened."""
        if event not in ("exec", "open") or getattr(self._state, "busy", False):
            return
        self._state.busy = True
        try:
            if event == "open":  # arguments: path, mode, flags
                self._remember_file(args[0], args[2])
            elif isinstance(args[0], CodeType) and args[0].co_name == "<module>" and id(args[0]) not in self._compiled:
                self._examine(args[0])
        finally:
            self._state.busy = False

    def read_without_remembering(self, path: str) -> bytes:
        """Return the bytes of a file that is imported, without remembering it as a file that the script reads."""
        self._state.busy = True
        try:
            return Path(path).read_bytes()
        finally:
            self._state.busy = False

    def _remember_file(self, path: Any, flags: Any) -> None:
        """Remember a Python file of the project that the script reads."""
        if not isinstance(path, (str, bytes, os.PathLike)) or not isinstance(flags, int) or flags & os.O_WRONLY:
            return
        name = os.path.abspath(os.fsdecode(path))
        if name.endswith(".py") and len(self._opened) < MAX_REMEMBERED and self.trees.find_position(name) is not None:
            try:
                data = Path(name).read_bytes()
                code = compile(data, "<string>", "exec", dont_inherit=True)
            except (OSError, SyntaxError, ValueError):
                return
            self._opened[name] = data, code

    def _examine(self, code: CodeType) -> None:
        """Record the file of module code that is executed; `from_file` is True if the file compiles to this code."""
        file = code.co_filename
        if file == "<string>":
            self._examine_text(code)
        elif (
            not file.startswith("<")
            and GENERATED_MARK not in file
            and self.trees.find_tree(os.path.abspath(file)) is not None
        ):
            path = os.path.abspath(file)
            try:
                data = Path(path).read_bytes()
            except OSError:
                if path.endswith(".py"):  # bytecode without its source; other names need not be files
                    self.record("", path, "", from_file=False)
                return
            self.record("", path, hashlib.sha256(data).hexdigest(), from_file=is_same_code(data, file, code))

    def _examine_text(self, code: CodeType) -> None:
        """Record the file whose text is executed, as in `exec(open("settings.py").read())`."""
        inherits = code.co_flags & FUTURE_FLAGS  # exec() compiles a text with the `from __future__` imports around it
        for path, (data, compiled) in self._opened.items():
            if compiled == code or (inherits and is_same_code(data, "<string>", code)):
                self.record("", path, hashlib.sha256(data).hexdigest(), from_file=True)
                return


def is_same_code(data: bytes, path: str, code: CodeType) -> bool:
    """Return True if a file's bytes compile to this code, with the `from __future__` flags of this code."""
    flags = code.co_flags & FUTURE_FLAGS
    for source in (data, data.decode("utf-8", "replace")):  # bytes and text may compile to different code
        try:
            if compile(source, path, "exec", flags=flags, dont_inherit=True) == code:
                return True
        except (SyntaxError, ValueError):
            continue
    return False


class OwnLoader(importlib.machinery.SourceFileLoader):
    """Loader of a file of the own tree: compiles its source, never reads a bytecode cache, and records the file."""

    def __init__(self, name: str, path: str, recorder: Recorder) -> None:
        super().__init__(name, path)
        self.recorder = recorder

    def get_data(self, path: str) -> bytes:
        return self.recorder.read_without_remembering(path)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its visible path as `__file__`."""
        module.__file__ = self.recorder.trees.find_visible_path(self.path)
        super().exec_module(module)

    def path_stats(self, path: str) -> Any:
        """Raise OSError, so that no bytecode cache is used."""
        raise OSError("bytecode caches of the project are not used")

    def source_to_code(self, data: Any, path: Any, *, _optimization: int = -1) -> CodeType:  # type: ignore[override]
        return self.recorder.compile_file(bytes(data), os.fspath(path), self.name)


class OwnTreeFinder(importlib.abc.MetaPathFinder):
    """Finder that calls the other finders, as Python would, and replaces their results by the own tree's files."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.trees = recorder, recorder.trees

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own_path = [self.trees.find_counterpart(entry) for entry in path] if path is not None else None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            search_path = own_path
            if finder is importlib.machinery.PathFinder and path is None:  # it would search sys.path
                search_path = [self.trees.find_counterpart(entry or os.getcwd()) for entry in sys.path]
            spec = finder.find_spec(name, search_path, target)
            if spec is not None:
                return self.map_spec(name, spec)
        return None

    def map_spec(self, name: str, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        """Return a spec that loads and records the own tree's file.

        `spec` itself is returned for a file outside of the own tree or with another loader, and for a package without
        __init__.py, whose folders are mapped to the own tree.
        """
        folders = spec.submodule_search_locations
        if spec.origin is None or not spec.has_location:  # a built-in module or a package without __init__.py
            if folders is not None and any(self.trees.find_counterpart(entry) != entry for entry in folders):
                spec.submodule_search_locations = [self.trees.find_counterpart(entry) for entry in folders]
            return spec
        path = self.trees.find_counterpart(spec.origin)
        if self.trees.find_tree(path) != "own":
            return spec
        loader: importlib.abc.Loader
        if type(spec.loader) is importlib.machinery.ExtensionFileLoader:
            digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            self.recorder.record(name, path, digest, from_file=True)
            loader = importlib.machinery.ExtensionFileLoader(name, path)
        elif type(spec.loader) is importlib.machinery.SourceFileLoader:
            loader = OwnLoader(name, path, self.recorder)
        else:
            return spec
        own_spec = importlib.machinery.ModuleSpec(name, loader, origin=path, is_package=folders is not None)
        own_spec.has_location = True
        if folders is not None:
            own_spec.submodule_search_locations = [self.trees.find_counterpart(entry) for entry in folders]
        return own_spec


def wrap_spec_from_file(finder: OwnTreeFinder) -> None:
    """Wrap spec_from_file_location so that a file loaded by its path (often a configuration) is the own tree's."""

    @wrap(importlib.util, "spec_from_file_location")
    def find_own_spec(plain: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        spec = plain(name, *args, **kwargs)
        return finder.map_spec(name, spec) if spec is not None else None


def wrap_run_path(recorder: Recorder) -> None:
    """Let runpy.run_path, which a spawned process calls with its script, run the own tree's file."""

    @wrap(runpy, "_get_code_from_file")
    def load_own_code(plain: Any, *args: Any) -> Any:
        *run_name, path = args  # Python 3.13 takes a path and returns code; older: (run_name, path) and (code, path)
        file = recorder.trees.find_counterpart(os.fspath(path))
        if recorder.trees.find_tree(file) != "own" or not file.endswith(".py"):
            return plain(*run_name, file)
        code = recorder.compile_file(Path(file).read_bytes(), file, "")
        return (code, file) if run_name else code
