"""What the files of a project do: open sessions with a helper's config, run Keras models, ask for ranks, import others.

The survey's last round. Rules of one file ask it about the rest: whether somebody else sets a session, whether the
script that is started will need communication because of a file that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.names import Names
from viaduct.migration.project import Project
from viaduct.migration.sessions import METHOD_SLOTS, SLOTS
from viaduct.migration.values import Values, constructed

ANY_RECEIVER = {method: slot for (_, method), slot in METHOD_SLOTS.items()}
KERAS_RUNS = {"fit", "fit_generator", "predict", "train_on_batch"}
ESTIMATOR_RUNS = {"train", "evaluate", "predict"}
RANK_CALLS = {"rank", "size", "local_rank", "local_size"}  # of Horovod
CONTEXT = ("num_input_pipelines", "input_pipeline_id")  # of an input context: what a dataset is sharded by


def note_habits(project: Project, files: dict[str, Names]) -> None:
    modules = {Project.module_of(path)[0]: path for path in files}
    for path, names in files.items():
        values = Values(names, project)
        for node in names.source.parents:  # every node; cheaper than to walk the tree again
            if isinstance(node, ast.Call):
                note_call(project, path, node, values)
        if any(word in names.source.text for word in CONTEXT):
            project.rank_files.add(path)
        if "stimator" in names.source.text and any(estimator_cycle(one, values) for one in functions(names)):
            project.cycle_files.add(path)
        project.imports[path] = {*imported_files(names, modules)} - {path}
        note_optimizers(project, names)
        project.own_methods |= set(methods_of(names))


def methods_of(names: Names) -> Iterator[str]:
    """Yield the names of the methods that a file's classes define."""
    for node in names.scopes:
        if isinstance(node, ast.ClassDef):
            yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def note_call(project: Project, path: str, call: ast.Call, values: Values) -> None:
    name = values.names.qualified(call.func)
    if name is not None and name not in project.functions:
        project.mentions.setdefault(name, set()).add(path)
    if name is not None and asks_for_rank(name):
        project.rank_files.add(path)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in KERAS_RUNS and values.kind(call.func.value) == "keras_model":  # type: ignore[attr-defined]
        project.keras_files.add(path)
    slot = SLOTS.get(name or "") or ANY_RECEIVER.get(method)
    if slot is not None:
        note_config_helper(project, values, config_argument(call, *slot))


def asks_for_rank(name: str) -> bool:
    if name.startswith("horovod."):
        return name.rpartition(".")[2] in RANK_CALLS
    return name.startswith(("hccl.manage.api.", "npu_bridge.hccl."))


def note_optimizers(project: Project, names: Names) -> None:
    """Classes that derive from an optimizer of TensorFlow."""
    for node in names.source.tree.body:
        if isinstance(node, ast.ClassDef) and node.bases:
            bases = [names.qualified(base) or "" for base in node.bases]
            if any(constructed(base) == "optimizer" or base in project.optimizers for base in bases):
                project.optimizers.add(f"{names.own}.{node.name}")


def note_config_helper(project: Project, values: Values, value: ast.expr | None) -> None:
    """Functions of the project that make the ConfigProto of some session: they are edited, not each session."""
    made = values.origin(value) if value is not None else None
    helper = values.names.qualified(made.func) if isinstance(made, ast.Call) else None
    if helper is not None and helper in project.functions:
        project.config_helpers.add(helper)


def config_argument(call: ast.Call, keyword: str, place: int) -> ast.expr | None:
    """What a call that opens a session is given as its ConfigProto."""
    for word in call.keywords:
        if word.arg == keyword:
            return word.value
    return call.args[place] if 0 <= place < len(call.args) else None


def functions(names: Names) -> list[ast.AST]:
    return [node for node in names.source.parents if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def estimator_cycle(function: ast.AST, values: Values) -> list[ast.Call]:
    """Calls of an Estimator's train and evaluate that others follow: in a loop, or further down."""
    found: list[tuple[ast.Call, bool]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and runs_estimator(node.func, values):
            found.append((node, in_loop(node, function, values)))
    found.sort(key=lambda pair: (pair[0].lineno, pair[0].col_offset))
    return [call for place, (call, again) in enumerate(found) if again or place + 1 < len(found)]


def runs_estimator(called: ast.expr, values: Values) -> bool:
    if not isinstance(called, ast.Attribute) or called.attr not in ESTIMATOR_RUNS:
        return False
    return values.kind(called.value) in ("estimator", "npu_estimator")


def in_loop(node: ast.AST, function: ast.AST, values: Values) -> bool:
    for parent in values.names.source.ancestors(node):
        if parent is function:
            return False
        if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
            return True
    return False


def imported_files(names: Names, modules: dict[str, str]) -> Iterator[str]:
    """Matched by the end of the dotted name: a project may be a folder of a larger package."""
    for name in imported_modules(names):
        parts = name.split(".")
        yield from (modules[end] for start in range(len(parts)) if (end := ".".join(parts[start:])) in modules)


def imported_modules(names: Names) -> Iterator[str]:
    for node in names.source.parents:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = names.imported_from(node)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
