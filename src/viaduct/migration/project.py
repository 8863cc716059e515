"""Survey of a project: facts that rules need across files, such as what kind of value a function returns or gets.

A kind is a string such as "dataset" or "session" (values.py). Files are parsed, never imported. The kinds of functions'
results are computed twice, because a function may return the result of another. Then follow the kinds of parameters,
and once more those of results, which may depend on parameters.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from viaduct.migration.classes import ProjectClass, record_classes, record_methods
from viaduct.migration.frameworks import Imports, decide_frameworks, mentions_framework_or_library, read_imports
from viaduct.migration.graphs import find_reachable, reverse_edges
from viaduct.migration.lookups import positional_parameters
from viaduct.migration.names import Names
from viaduct.migration.reexports import Exports
from viaduct.migration.source import FunctionNode, Source, Unparsable, decode

if TYPE_CHECKING:
    from viaduct.migration.flows import Question, Use

HELPER_MODULE = "accelerator_device"
"""Module that --to any writes into a project; another name is used if the project has a module of this name."""
SCOPES = FunctionNode | ast.ClassDef | ast.Lambda


@dataclass
class Project:
    """Facts that the survey has found: paths of files, qualified names of functions and classes, kinds (values.py)."""

    # files
    parsed: dict[str, Names] = field(default_factory=dict)  # surveyed files with their trees
    surveyed: set[str] = field(default_factory=set)  # keys of `parsed`, also in an outline, which has no `parsed`
    frameworks: dict[str, frozenset[str]] = field(default_factory=dict)  # file -> frameworks whose rules run on it
    torch_files: set[str] = field(default_factory=set)  # files that import PyTorch or a library based on it
    imports: dict[str, set[str]] = field(default_factory=dict)  # file -> files that it imports
    importers: dict[str, set[str]] = field(default_factory=dict)  # the reverse of `imports`
    plain_imported_names: set[str] = field(default_factory=set)  # names that files without a framework import
    other_packages: set[str] = field(default_factory=set)  # imported, not of the project, not known to viaduct
    own_module_names: set[str] = field(default_factory=set)  # names of the project's folders and modules
    exports: Exports = field(default_factory=Exports)  # names that modules re-export: reexports.py
    entry: str = ""  # the script of --entry
    helpers: dict[str, tuple[str, str]] = field(default_factory=dict)  # file -> its helper: (module, file)

    # functions and classes
    functions: dict[str, tuple[str, FunctionNode]] = field(default_factory=dict)  # top-level: name -> (file, node)
    calls: dict[str, list[tuple[str, ast.Call]]] = field(default_factory=dict)  # function -> (file, call) of each call
    result_kinds: dict[str, str] = field(default_factory=dict)  # function, or module.Class.method -> kind of the result
    parameter_kinds: dict[tuple[str, str], str] = field(default_factory=dict)  # (function, parameter) -> kind
    # (function, parameter): every call passes a value of another library (values.OTHER_LIBRARIES)
    other_library_parameters: set[tuple[str, str]] = field(default_factory=set)
    classes: dict[str, ProjectClass] = field(default_factory=dict)
    classes_by_last_name: dict[str, list[str]] = field(default_factory=dict)  # last part of a qualified name -> classes
    attribute_kinds: dict[str, str] = field(default_factory=dict)  # module.Class.attribute -> kind
    own_method_names: set[str] = field(default_factory=set)  # names of the methods of all classes
    files_calling: dict[str, set[str]] = field(default_factory=dict)  # called function, not in `functions` -> files
    uses_by_question: dict[Question, set[Use]] = field(default_factory=dict)  # answers of other files: flows.py

    # Horovod's module as a value: module_flow.py
    horovod_aliases: dict[str, str] = field(default_factory=dict)  # key (see module_flow.py) -> module
    horovod_alias_files: set[str] = field(default_factory=set)  # files in which names resolve through these aliases
    horovod_escapes: dict[str, set[int]] = field(default_factory=dict)  # file -> lines that pass it to unknown code
    unconverted_horovod_files: set[str] = field(default_factory=set)  # files that use members which no rule converts

    # what files do: project_usage.py
    session_config_functions: set[str] = field(default_factory=set)  # functions whose ConfigProto reaches a session
    keras_files: set[str] = field(default_factory=set)  # files that train or run a Keras model
    rank_files: set[str] = field(default_factory=set)  # files that query ranks or use HCCL, or will once migrated
    horovod_rank_files: set[str] = field(default_factory=set)  # files that query Horovod for ranks
    estimator_cycle_files: set[str] = field(default_factory=set)  # files with a function that runs Estimators in turn
    training_files: set[str] = field(default_factory=set)  # files that minimise a loss or apply gradients
    broadcast_files: set[str] = field(default_factory=set)  # files that broadcast variables
    input_functions: dict[str, set[str]] = field(default_factory=dict)  # input_fn -> methods that call it, as "train"
    npu_optimizer_functions: set[str] = field(default_factory=set)  # they add NpuOptimizer; methods also as `.method`
    initialisers: set[str] = field(default_factory=set)  # what is an initialiser: project_usage.record_variables
    attributes_with_other_values: set[str] = field(default_factory=set)  # `.attribute` that is assigned other values
    optimizer_classes: set[str] = field(default_factory=set)  # classes that derive from a TensorFlow optimizer
    device_options: set[str] = field(default_factory=set)  # command-line options for a device: shell.record_options
    backend_options: set[str] = field(default_factory=set)  # command-line options for a backend

    # caches of methods below and of classes.py
    files_by_text: dict[str, frozenset[str]] = field(default_factory=dict)
    known_importers: dict[str, set[str]] = field(default_factory=dict)
    run_together_cache: dict[tuple[str, str], bool] = field(default_factory=dict)
    owners_by_method: dict[str, list[str]] = field(default_factory=dict)

    def files_containing(self, text: str) -> frozenset[str]:
        """Return the surveyed files that contain a text."""
        if text not in self.files_by_text:
            paths = (path for path, names in self.parsed.items() if text in names.source.text)
            self.files_by_text[text] = frozenset(paths)
        return self.files_by_text[text]

    def all_importers(self, path: str) -> set[str]:
        """Return the file and all files that import it, directly or not."""
        if path not in self.known_importers:
            self.known_importers[path] = find_reachable(path, self.importers)
        return self.known_importers[path]

    def outline(self, members: Iterable[str]) -> Project:
        """Return a copy without syntax trees, with the facts that are needed after the rules have run."""
        return Project(
            frameworks={path: self.frameworks[path] for path in members if path in self.frameworks},
            torch_files=self.torch_files,
            entry=self.entry,
            helpers=self.helpers,
            surveyed=self.surveyed,
            imports=self.imports,
            other_packages=self.other_packages,
            device_options=self.device_options,
            backend_options=self.backend_options,
        )

    def all_imports(self, path: str) -> set[str]:
        """Return the file and all files that it imports, directly or not."""
        return find_reachable(path, self.imports)

    def uses_rules_of(self, framework: str, path: str) -> bool:
        """Return True if the rules of a framework run on a file; all rules run on a file without a framework."""
        return framework in self.frameworks.get(path, (framework,))

    def helper_module_of(self, path: str) -> str:
        """Return the helper module that a file imports with --to any."""
        return self.helpers[path][0] if path in self.helpers else HELPER_MODULE

    @staticmethod
    def module_of(path: str) -> tuple[str, bool]:
        """Return the dotted name of a file, and True for a package's __init__."""
        parts = PurePosixPath(path).with_suffix("").parts
        is_package = bool(parts) and parts[-1] == "__init__"
        return ".".join(parts[:-1] if is_package else parts), is_package


def survey(files: Iterable[tuple[str, bytes]]) -> Project:
    """Survey the files of a project, given as path and content."""
    from viaduct.migration.flow_survey import record_uses
    from viaduct.migration.import_graph import Modules, list_other_packages, scan_imports
    from viaduct.migration.module_flow import record_module_flow
    from viaduct.migration.project_usage import record_usage

    project = Project()
    parsed: dict[str, Names] = {}
    plain: list[tuple[str, bytes]] = []
    imports: dict[str, Imports] = {}
    for path, data in files:
        project.own_module_names.update(PurePosixPath(path).with_suffix("").parts)
        if not mentions_framework_or_library(data):
            plain.append((path, data))
            imports[path] = Imports(modules=frozenset(scan_imports(data, path)))
            project.plain_imported_names |= imports[path].modules
            continue
        names = parse_names(path, data)
        if names is None:
            continue
        parsed[path] = names
        project.exports.record(names)
        imports[path] = read_imports(names)
        record_classes(project, path, names)
    modules = Modules(imports)
    project.imports = {path: modules.find_all(item.modules, path) for path, item in imports.items()}
    project.other_packages = list_other_packages({path: item.modules for path, item in imports.items()}, modules)
    project.importers = reverse_edges(project.imports)
    decide_frameworks(project, imports)
    parsed |= parse_users_of_reexports(project, plain, imports)
    for names in parsed.values():
        names.exports = project.exports
    project.parsed, project.surveyed = parsed, {*parsed}
    record_module_flow(project, parsed, plain)
    for _ in range(2):
        for path, names in parsed.items():
            record_functions(project, path, names)
            record_methods(project, names)
    for path, names in parsed.items():
        record_calls(project, path, names)
    record_parameters(project, parsed)
    for path, names in parsed.items():
        record_functions(project, path, names)
    record_usage(project, parsed)
    record_uses(project, parsed)
    return project


def parse_names(path: str, data: bytes) -> Names | None:
    """Return the names of a file; None if it cannot be parsed."""
    try:
        return Names(Source(decode(data)[0]), *Project.module_of(path))
    except Unparsable:
        return None


def parse_users_of_reexports(
    project: Project, files: list[tuple[str, bytes]], imports: dict[str, Imports]
) -> dict[str, Names]:
    """Parse files that get a framework's names only through modules of the project, which may be such files too."""
    users: dict[str, Names] = {}
    pending = files
    while pending:
        waiting, count = [], len(users)
        for path, data in pending:
            module, is_package = Project.module_of(path)
            package = module if is_package else module.rpartition(".")[0]
            modules = project.exports.find_own_modules(imports[path].modules, package)
            if not any(project.exports.offers_framework(module) for module in modules):
                waiting.append((path, data))
                continue
            names = parse_names(path, data)
            if names is not None:
                users[path] = names
                project.exports.record(names)
        pending = waiting if len(users) > count else []
    return users


def merge_outlines(outlines: Iterable[Project]) -> Project:
    """Return one outline for a project that was surveyed in parts."""
    merged = Project()
    for outline in outlines:
        merged.torch_files |= outline.torch_files
        merged.frameworks |= outline.frameworks
        merged.surveyed |= outline.surveyed
        merged.other_packages |= outline.other_packages
        for path, imported in outline.imports.items():
            merged.imports.setdefault(path, set()).update(imported)
        merged.device_options |= outline.device_options
        merged.backend_options |= outline.backend_options
        merged.entry = outline.entry
        merged.helpers |= outline.helpers
    return merged


def record_functions(project: Project, path: str, names: Names) -> None:
    """Record the top-level functions of a file and the kinds of their results."""
    from viaduct.migration.values import Values

    values = Values(names, project)
    for node in names.source.tree.body:
        if isinstance(node, FunctionNode):
            name = f"{names.module}.{node.name}"
            project.functions[name] = (path, node)
            kinds = {values.full_kind(statement.value) for statement in returns_of(names, node)}
            kind = kinds.pop() if len(kinds) == 1 else None
            if kind:
                project.result_kinds[name] = kind


def returns_of(names: Names, function: FunctionNode) -> list[ast.Return]:
    """Return the return statements of a function, without those of nested functions."""
    by_function: dict[ast.AST, list[ast.Return]] = names.get_table("returns", lambda: group_returns(names.source))
    return by_function.get(function, [])


def group_returns(source: Source) -> dict[ast.AST, list[ast.Return]]:
    """Return the return statements of a file by their function, in the order of the text."""
    groups: dict[ast.AST, list[ast.Return]] = {}
    for statement in source.nodes_of_type(ast.Return):
        scope = next((parent for parent in source.ancestors(statement) if isinstance(parent, SCOPES)), None)
        if scope is not None:
            groups.setdefault(scope, []).append(statement)
    return groups


def record_calls(project: Project, path: str, names: Names) -> None:
    """Record the calls of the project's own functions."""
    for call in names.source.nodes_of_type(ast.Call):
        name = names.qualified(call.func)
        if name in project.functions:
            project.calls.setdefault(name, []).append((path, call))


def record_parameters(project: Project, files: dict[str, Names]) -> None:
    """Record the kind of each parameter for which all visible arguments in the project have the same kind."""
    from viaduct.migration.values import Values

    values = {path: Values(names, project) for path, names in files.items()}
    for name, calls in project.calls.items():
        kinds_by_parameter: dict[str, set[str | None]] = defaultdict(set)
        from_other_library: dict[str, set[bool]] = defaultdict(set)
        for path, call in calls:
            for parameter, value in iterate_arguments(project, name, call):
                kinds_by_parameter[parameter].add(values[path].full_kind(value))
                from_other_library[parameter].add(values[path].is_from_other_library(value))
        for parameter, kinds in kinds_by_parameter.items():
            kind = kinds.pop() if len(kinds) == 1 else None
            if kind:
                project.parameter_kinds[(name, parameter)] = kind
        project.other_library_parameters |= {
            (name, parameter) for parameter, flags in from_other_library.items() if flags == {True}
        }


def iterate_arguments(project: Project, name: str, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield (parameter, value) for each argument of a call of a function; `*` fills all later parameters."""
    parameters = positional_parameters(project.functions[name][1])
    for index, argument in enumerate(call.args[: len(parameters)]):
        filled = parameters[index:] if isinstance(argument, ast.Starred) else [parameters[index]]
        yield from ((parameter, argument) for parameter in filled)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)
