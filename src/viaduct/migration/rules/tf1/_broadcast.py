"""Code that broadcasts variables from one rank, and a test for programs in which an Estimator broadcasts them."""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.rule import Site
from viaduct.migration.rules._entry import is_called_in_program
from viaduct.migration.rules.tf1._tensorflow_names import render_tensorflow_name
from viaduct.migration.sessions import MONITORED_SESSIONS, SESSION_CLASSES

ESTIMATORS = (
    "tensorflow.estimator.Estimator",
    "tensorflow.estimator.tpu.TPUEstimator",
    "tensorflow.keras.estimator.model_to_estimator",
    full_name("NPUEstimator"),
)
SESSION_OPENERS = (
    *SESSION_CLASSES, *MONITORED_SESSIONS, "tensorflow.train.MonitoredSession", "tensorflow.train.Supervisor",
)  # fmt: skip


def is_trained_by_estimator(site: Site) -> bool:
    """Return True if this file opens no session, and it or another file of its program creates an Estimator."""
    opens_session = any(name in site.file.index.calls for name in SESSION_OPENERS)
    return not opens_session and is_called_in_program(site, ESTIMATORS)


def prepend_item(site: Site, value: ast.expr, item: str) -> None:
    """Insert the code of a hook or callback at the beginning of a list; a tuple, or another value, becomes a list."""
    start, end = site.source.span(value)
    if isinstance(value, ast.List):
        site.edit.insert(start + 1, f"{item}, " if value.elts else item)
    elif isinstance(value, ast.Tuple) and site.source.text[start] == "(":
        site.edit.replace(start, start + 1, f"[{item}, " if value.elts else f"[{item}")
        site.edit.replace(end - 1, end, "]")
    elif isinstance(site.values.assigned_value(value), ast.List):
        site.edit.insert(start, f"[{item}] + ")
    else:
        site.edit.replace_node(value, f"[{item}] + list({site.text_of(value)} or [])")


def render_trainable_variables(site: Site) -> str:
    return f"{render_tensorflow_name(site, 'trainable_variables')}()"


def render_broadcast(site: Site, variables: str, root: str = "0") -> str:
    """Return the code of an operation that assigns each variable its value on rank `root`.

    `variables` and `root` are code.
    """
    operators = site.import_npu_name("hccl_ops")
    group = render_tensorflow_name(site, "group")
    return f"{group}(*[var.assign({operators}.broadcast([var], {root})[0]) for var in {variables}])"
