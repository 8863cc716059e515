"""Names of Keras in a file, TensorFlow's own or the standalone package. Not a rule: the Keras rules share it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.names import Function
from viaduct.migration.rule import Site

ROOTS = ("tensorflow.keras.", "keras.")
BUILDING = ("layers.", "models.", "optimizers.", "applications.", "Input", "Model", "Sequential")
BASES = tuple(
    f"{root}{name}" for root in ROOTS for name in ("Model", "models.Model", "Sequential", "models.Sequential")
)
RUNNING = (
    *("fit", "fit_generator", "evaluate", "evaluate_generator", "predict", "predict_generator"),
    *("train_on_batch", "test_on_batch", "predict_on_batch"),
)
SET_SESSION = (
    *("tensorflow.keras.backend.set_session", "keras.backend.set_session"),
    *("keras.backend.tensorflow_backend.set_session", full_name("set_keras_session_npu_config")),
)
GET_SESSION = ("tensorflow.keras.backend.get_session", "keras.backend.get_session")
EAGER = ("tensorflow.enable_eager_execution", "tensorflow.enable_v2_behavior")


def is_keras(name: str | None) -> bool:
    return name is not None and name.startswith(ROOTS)


def builds(name: str | None) -> bool:
    """Return True if a call of this makes a layer, a model or an optimizer."""
    return any(name.startswith(root + part) for root in ROOTS for part in BUILDING) if name else False


def is_model(site: Site, node: ast.expr) -> bool:
    """Return True for a Keras model, told by its constructor or by a class of this file that derives from Keras's."""
    if site.values.kind(node) == "keras_model":
        return True
    made = site.values.origin(node)
    return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in model_classes(site)


def model_classes(site: Site) -> set[str]:
    return {
        node.name
        for node in site.source.tree.body
        if isinstance(node, ast.ClassDef) and any(site.qualified(base) in BASES for base in node.bases)
    }


def find_runs(site: Site) -> list[ast.Call]:
    """Return the calls of fit, evaluate, predict … on a model, and of get_session, which makes a missing session."""
    index = site.work.index
    calls = [call for name in RUNNING for call in index.methods.get(name, [])]
    found = [call for call in calls if isinstance(call.func, ast.Attribute) and is_model(site, call.func.value)]
    return found + [call for name in GET_SESSION for call in index.calls.get(name, [])]


def runs_eagerly(site: Site) -> bool:
    """Return True if the file has a call `….compile(…, run_eagerly=True)`."""
    keywords = [keyword for call in site.work.index.methods.get("compile", []) for keyword in call.keywords]
    return any(keyword.arg == "run_eagerly" and is_true(keyword.value) for keyword in keywords)


def is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def is_standalone(site: Site) -> bool:
    """Return True if the file uses the standalone package `keras`.

    Of a file without any Keras: True if the project uses `keras` and never `tensorflow.keras`.
    """
    here = (*site.work.index.calls, *site.work.index.references)
    used = here if any(is_keras(name) for name in here) else tuple(site.work.project.mentions)
    standalone = any(name.startswith("keras.") for name in used)
    return standalone and (used is here or not any(name.startswith("tensorflow.keras.") for name in used))


def walk_executed(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes that run when the statement does: not the bodies of functions and lambdas in it."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [*node.decorator_list, *node.args.defaults]
        elif not isinstance(node, Function):
            pending += ast.iter_child_nodes(node)
