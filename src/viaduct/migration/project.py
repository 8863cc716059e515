"""Survey of a project: what its functions return and are passed, and other facts that rules need about other files.

Files are parsed, never imported. What functions return is worked out in two rounds over the files that mention a
framework, then what is passed to them, then once more what they return.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from viaduct.migration.classes import OwnClass, note_classes, note_methods
from viaduct.migration.names import Names
from viaduct.migration.reexports import Exports
from viaduct.migration.source import Source, Unparsable, decode

FRAMEWORKS = (b"tensorflow", b"torch", b"keras", b"horovod")
HELPER = "accelerator_device"
"""The module that --to any writes into a project, unless it has one of that name."""
IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_.][\w.]*)(?:[ \t]+import[ \t]+([\w, \t]+))?", re.MULTILINE)


SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@dataclass
class Project:
    """What the survey has found. A kind is one of values.py.

    returns: qualified function -> kind; parameters: (qualified function, parameter) -> kind.

    calls: qualified function -> (file, call) of every place that calls it; functions: where it is defined.
    config_helpers: functions whose ConfigProto reaches a session; mentions: framework function -> files that call it.
    keras_files: those that train or run a Keras model; rank_files: those that ask for ranks, or will once migrated;
    horovod_ranks: those that ask Horovod for them;
    cycle_files: those that run an Estimator (train, evaluate, predict) more than once in a function;
    imports: file -> files that it imports;
    optimizers: classes of the project that derive from a TensorFlow optimizer; own_names: folders and modules it has;
    others: parameters, as in `parameters`, for which every call passes something of another library.
    own_methods: names of the methods of its classes; exports: what its modules hand on (reexports.py).
    torch_files: those that import PyTorch or a library on it; classes: what files define.
    frameworks: file -> the frameworks whose rules are for it, see frameworks.py.
    uses: what becomes of values that travel between files, see flows.py: question -> answers.
    importers: the reverse of imports; plain_imports: file without any framework -> dotted names that it imports.
    training_files: those that minimise a loss or apply gradients; broadcast_files: those that broadcast variables;
    fed: function that makes a dataset -> which of train, evaluate and predict get it;
    npu_helpers: functions that add NpuOptimizer to a config, as `module.function`, methods also as `.method`;
    initialisers: what holds an initialiser of all variables: `module.name`, `module.function`, `.attribute`;
    aliases, alias_files, escapes: see module_flow.py;
    horovod_kept: files that use of Horovod what the device has nothing like.
    other_attributes: attributes, as `.attribute`, to which something else is assigned somewhere.
    named: modules that files without any framework import, such as a main.py that only starts the training.
    """

    returns: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)  # module.Class.attribute -> kind
    parameters: dict[tuple[str, str], str] = field(default_factory=dict)
    calls: dict[str, list[tuple[str, ast.Call]]] = field(default_factory=dict)
    functions: dict[str, tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=dict)
    config_helpers: set[str] = field(default_factory=set)
    mentions: dict[str, set[str]] = field(default_factory=dict)
    keras_files: set[str] = field(default_factory=set)
    rank_files: set[str] = field(default_factory=set)
    horovod_ranks: set[str] = field(default_factory=set)
    cycle_files: set[str] = field(default_factory=set)
    imports: dict[str, set[str]] = field(default_factory=dict)
    importers: dict[str, set[str]] = field(default_factory=dict)
    plain_imports: dict[str, set[str]] = field(default_factory=dict)
    training_files: set[str] = field(default_factory=set)
    broadcast_files: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    alias_files: set[str] = field(default_factory=set)
    escapes: dict[str, set[int]] = field(default_factory=dict)
    horovod_kept: set[str] = field(default_factory=set)
    fed: dict[str, set[str]] = field(default_factory=dict)
    npu_helpers: set[str] = field(default_factory=set)
    initialisers: set[str] = field(default_factory=set)
    other_attributes: set[str] = field(default_factory=set)
    optimizers: set[str] = field(default_factory=set)
    own_names: set[str] = field(default_factory=set)
    others: set[tuple[str, str]] = field(default_factory=set)
    exports: Exports = field(default_factory=Exports)
    own_methods: set[str] = field(default_factory=set)
    torch_files: set[str] = field(default_factory=set)
    frameworks: dict[str, frozenset[str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=dict)
    classes: dict[str, OwnClass] = field(default_factory=dict)
    class_tails: dict[str, list[str]] = field(default_factory=dict)  # bare name -> classes of that name
    met: dict[tuple[str, str], bool] = field(default_factory=dict)  # see classes.meet
    owning: dict[str, list[str]] = field(default_factory=dict)  # see classes.owners
    entry: str = ""
    helpers: dict[str, tuple[str, str]] = field(default_factory=dict)  # see neutral.py: file -> (module, its file)
    parsed: dict[str, Names] = field(default_factory=dict)  # the files as they were surveyed, not to be parsed again

    surveyed: set[str] = field(default_factory=set)  # files that were parsed
    device_options: set[str] = field(default_factory=set)  # of command lines, see shell.note_options
    backend_options: set[str] = field(default_factory=set)

    holding: dict[str, frozenset[str]] = field(default_factory=dict)  # see files_with
    above: dict[str, frozenset[str]] = field(default_factory=dict)  # see all_importers

    def files_with(self, text: str) -> frozenset[str]:
        """Return the surveyed files that hold a text; each text is searched for once."""
        if text not in self.holding:
            held = (path for path, names in self.parsed.items() if text in names.source.text)
            self.holding[text] = frozenset(held)
        return self.holding[text]

    def all_importers(self, path: str) -> frozenset[str]:
        """Return the file and all files that import it, directly or not."""
        if path not in self.above:
            found, pending = {path}, [path]
            while pending:
                fresh = self.importers.get(pending.pop(), set()) - found
                found |= fresh
                pending += fresh
            self.above[path] = frozenset(found)
        return self.above[path]

    def outline(self, members: Iterable[str]) -> Project:
        """Return what is needed after the migration: paths and names, no trees; frameworks of `members` only."""
        return Project(
            frameworks={path: self.frameworks[path] for path in members if path in self.frameworks},
            torch_files=self.torch_files,
            entry=self.entry,
            helpers=self.helpers,
            surveyed=self.surveyed,
            imports=self.imports,
            device_options=self.device_options,
            backend_options=self.backend_options,
        )

    def reaches(self, path: str) -> set[str]:
        """Return the file and all files that it imports, directly or not."""
        found, pending = {path}, [path]
        while pending:
            fresh = self.imports.get(pending.pop(), set()) - found
            found |= fresh
            pending += fresh
        return found

    def is_for(self, framework: str, path: str) -> bool:
        """Return True if the rules of a framework are for a file, or the file has no known framework."""
        return framework in self.frameworks.get(path, (framework,))

    def helper_of(self, path: str) -> str:
        """Return the helper module that a file imports with --to any."""
        return self.helpers[path][0] if path in self.helpers else HELPER

    @staticmethod
    def module_of(path: str) -> tuple[str, bool]:
        """Return the dotted name of a file, and whether it is a package's __init__."""
        parts = PurePosixPath(path).with_suffix("").parts
        package = bool(parts) and parts[-1] == "__init__"
        return ".".join(parts[:-1] if package else parts), package


def survey(files: Iterable[tuple[str, bytes]]) -> Project:
    """Survey the files of a project, given as path and content."""
    from viaduct.migration.flows import note_uses
    from viaduct.migration.frameworks import Imports, decide_frameworks, names_framework, read_imports
    from viaduct.migration.import_graph import scan_imports
    from viaduct.migration.module_flow import note_module_flow
    from viaduct.migration.project_usage import note_habits

    project = Project()
    parsed: list[tuple[str, Names]] = []
    others: list[tuple[str, bytes]] = []
    imports: dict[str, Imports] = {}
    for path, data in files:
        project.own_names.update(PurePosixPath(path).with_suffix("").parts)
        if not names_framework(data):
            project.named |= imported_names(data)
            others.append((path, data))
            project.plain_imports[path] = {*scan_imports(data, path)}
            imports[path] = Imports(modules=frozenset(project.plain_imports[path]))
            continue
        names = parse_names(path, data)
        if names is None:
            continue
        parsed.append((path, names))
        project.exports.note(names)
        imports[path] = read_imports(names)
        note_classes(project, *parsed[-1])
    decide_frameworks(project, imports)
    parsed += files_that_receive(project, others)
    for _, names in parsed:
        names.exports = project.exports
    project.parsed = dict(parsed)
    project.surveyed = set(project.parsed)
    note_module_flow(project, project.parsed)
    for _ in range(2):
        for path, names in parsed:
            note_functions(project, path, names)
            note_methods(project, names)
    for path, names in parsed:
        note_calls(project, path, names)
    note_parameters(project, dict(parsed))
    for path, names in parsed:
        note_functions(project, path, names)
    note_habits(project, dict(parsed))
    note_uses(project, dict(parsed))
    return project


def parse_names(path: str, data: bytes) -> Names | None:
    """Return the names of a file; None if it cannot be parsed."""
    try:
        return Names(Source(decode(data)[0]), *Project.module_of(path))
    except Unparsable:
        return None


def files_that_receive(project: Project, files: list[tuple[str, bytes]]) -> list[tuple[str, Names]]:
    """Parse the files that name no framework and import one by way of the project's own modules."""
    found: list[tuple[str, Names]] = []
    pending = files
    while pending:
        waiting, fresh = [], 0
        for path, data in pending:
            module, is_package = Project.module_of(path)
            package = module if is_package else module.rpartition(".")[0]
            givers = project.exports.givers(imported_names(data), package)
            if not any(project.exports.offers_framework(giver) for giver in givers):
                waiting.append((path, data))
                continue
            names = parse_names(path, data)
            if names is not None:
                found.append((path, names))
                project.exports.note(names)
                fresh += 1
        pending = waiting if fresh else []
    return found


def merge_outlines(outlines: Iterable[Project]) -> Project:
    """Return the outlines of several parts of a project as one."""
    merged = Project()
    for outline in outlines:
        merged.torch_files |= outline.torch_files
        merged.frameworks |= outline.frameworks
        merged.surveyed |= outline.surveyed
        for path, imported in outline.imports.items():
            merged.imports.setdefault(path, set()).update(imported)
        merged.device_options |= outline.device_options
        merged.backend_options |= outline.backend_options
        merged.entry = outline.entry
        merged.helpers |= outline.helpers
    return merged


def imported_names(data: bytes) -> set[str]:
    """Return the names that a text imports, found without parsing it: of `from a import b` both a and a.b."""
    found: set[str] = set()
    for module, names in IMPORTS.findall(data):
        base = module.decode()
        found |= {base, *(f"{base}.{name}" for name in names.decode().replace(",", " ").split())}
    return found


def note_functions(project: Project, path: str, names: Names) -> None:
    """Record the functions of a file and what they return."""
    from viaduct.migration.values import Values

    values = Values(names, project)
    for node in names.source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{names.own}.{node.name}"
            project.functions[name] = (path, node)
            kinds = {values.whole_kind(statement.value) for statement in returns_of(names, node)}
            found = kinds.pop() if len(kinds) == 1 else None
            if found:
                project.returns[name] = found


def returns_of(names: Names, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Return]:
    """Return the return statements of a function, without those of functions defined within it."""
    by_function: dict[ast.AST, list[ast.Return]] = names.remember("returns", lambda: group_returns(names.source))
    return by_function.get(function, [])


def group_returns(source: Source) -> dict[ast.AST, list[ast.Return]]:
    """Return the return statements of a file by the function that they leave, in the order of the text."""
    found: dict[ast.AST, list[ast.Return]] = {}
    for statement in source.of_kind(ast.Return):
        holder: ast.AST | None = statement
        while holder is not None and not isinstance(holder, SCOPES):
            holder = source.parents.get(holder)
        if holder is not None:
            found.setdefault(holder, []).append(statement)
    return found


def note_calls(project: Project, path: str, names: Names) -> None:
    """Record the calls of the project's own functions."""
    for call in names.source.of_kind(ast.Call):
        name = names.qualified(call.func)
        if name in project.functions:
            project.calls.setdefault(name, []).append((path, call))


def note_parameters(project: Project, files: dict[str, Names]) -> None:
    """Record the kind of each parameter for which every call in the project passes the same kind."""
    from viaduct.migration.values import Values

    values = {path: Values(names, project) for path, names in files.items()}
    for name, calls in project.calls.items():
        given: dict[str, set[str | None]] = defaultdict(set)
        others: dict[str, set[bool]] = defaultdict(set)
        for path, parameter, value in passed_in(project, name, calls):
            given[parameter].add(values[path].whole_kind(value))
            others[parameter].add(values[path].is_other(value))
        for parameter, kinds in given.items():
            kind = kinds.pop() if len(kinds) == 1 else None
            if kind:
                project.parameters[(name, parameter)] = kind
        project.others |= {(name, parameter) for parameter, found in others.items() if found == {True}}


def passed_in(project: Project, name: str, calls: list[tuple[str, ast.Call]]) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield what the calls of a function pass: the file, the parameter, the value."""
    parameters = [parameter.arg for parameter in project.functions[name][1].args.args]
    for path, call in calls:
        for index, argument in enumerate(call.args[: len(parameters)]):
            yield path, parameters[index], argument
        for keyword in call.keywords:
            if keyword.arg:
                yield path, keyword.arg, keyword.value
