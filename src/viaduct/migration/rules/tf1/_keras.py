"""Models and functions of Keras in a file: of tf.keras, or of the standalone package."""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import calls_to, plain_name
from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Site

PREFIXES = ("tensorflow.keras.", "keras.")
BUILDERS = ("layers.", "models.", "optimizers.", "applications.", "Input", "Model", "Sequential")
MODEL_CLASSES = tuple(
    f"{root}{name}" for root in PREFIXES for name in ("Model", "models.Model", "Sequential", "models.Sequential")
)
RUN_METHODS = (  # methods of a model; each makes Keras create a session if none is set
    "fit", "fit_generator", "evaluate", "evaluate_generator", "predict", "predict_generator", "train_on_batch",
    "test_on_batch", "predict_on_batch",
)  # fmt: skip
SET_SESSION = (
    "tensorflow.keras.backend.set_session",
    "keras.backend.set_session",
    "keras.backend.tensorflow_backend.set_session",
    full_name("set_keras_session_npu_config"),
)
GET_SESSION = ("tensorflow.keras.backend.get_session", "keras.backend.get_session")
EAGER_SWITCHES = ("tensorflow.enable_eager_execution", "tensorflow.enable_v2_behavior")


def is_builder(name: str | None) -> bool:
    """Return True for the qualified name of a function or class that creates a layer, a model or an optimizer."""
    return any(name.startswith(root + part) for root in PREFIXES for part in BUILDERS) if name else False


def is_model(site: Site, node: ast.expr) -> bool:
    """Return True for an object of a Keras model class, or of a class in this file that derives from one."""
    if site.values.kind(node) == "keras_model":
        return True
    origin = site.values.assigned_value(node)
    return isinstance(origin, ast.Call) and plain_name(origin.func) in find_model_classes(site)


def has_unknown_origin(site: Site, receiver: ast.expr) -> bool:
    """Return True for an object whose kind, such as "keras_model", and qualified name are unknown."""
    return site.values.kind(receiver) is None and site.qualified_name(receiver) is None


def find_model_classes(site: Site) -> set[str]:
    """Return the classes at module level of this file that derive from a Keras model class."""
    return {
        node.name
        for node in site.source.tree.body
        if isinstance(node, ast.ClassDef) and any(site.qualified_name(base) in MODEL_CLASSES for base in node.bases)
    }


def find_runs(site: Site) -> list[ast.Call]:
    """Return the calls of fit, evaluate, predict … on a model, and of get_session, which create a session if needed."""
    calls = [call for name in RUN_METHODS for call in site.file.index.methods.get(name, [])]
    return [*(call for call in calls if is_run(site, call)), *calls_to(site, GET_SESSION)]


def is_run(site: Site, call: ast.Call) -> bool:
    """Return True for `model.fit(…)` and the like on a Keras model."""
    function = call.func
    return isinstance(function, ast.Attribute) and function.attr in RUN_METHODS and is_model(site, function.value)


def runs_eagerly(site: Site) -> bool:
    """Return True if the file has a call `….compile(…, run_eagerly=True)`."""
    keywords = [keyword for call in site.file.index.methods.get("compile", []) for keyword in call.keywords]
    return any(keyword.arg == "run_eagerly" and is_constant(keyword.value, True) for keyword in keywords)


def is_standalone(site: Site) -> bool:
    """Return True if the file uses the standalone package `keras`.

    For a file without Keras: True if the project uses `keras` and never `tensorflow.keras`.
    """
    file_names = (*site.file.index.calls, *site.file.index.references)
    uses_keras = any(name.startswith(PREFIXES) for name in file_names)
    names = file_names if uses_keras else tuple(site.file.project.files_calling)
    has_standalone = any(name.startswith("keras.") for name in names)
    return has_standalone and (uses_keras or not any(name.startswith("tensorflow.keras.") for name in names))
