"""Broadcast of variables from one rank. Not a rule: Horovod's and the session's broadcasts share it."""

from __future__ import annotations

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.sessions import MONITORED_SESSIONS, SESSION_CLASSES

ESTIMATORS = (
    "tensorflow.estimator.Estimator",
    "tensorflow.estimator.tpu.TPUEstimator",
    "tensorflow.keras.estimator.model_to_estimator",
    full_name("NPUEstimator"),
)
SESSION_OPENERS = (
    *SESSION_CLASSES,
    *MONITORED_SESSIONS,
    "tensorflow.train.MonitoredSession",
    "tensorflow.train.Supervisor",
)


def estimator_trains(site: Site) -> bool:
    """Return True if this file opens no session, and it or another file of the project makes an Estimator."""
    called, project = site.work.index.calls, site.work.project.library_calls
    if any(name in called for name in SESSION_OPENERS):
        return False
    return any(name in called or name in project for name in ESTIMATORS)


def render_trainable_variables(site: Site) -> str:
    return f"{proto.tensorflow_name(site, 'trainable_variables')}()"


def render_broadcast(site: Site, variables: str, root: str = "0") -> str:
    """Return the code of an operation that assigns each variable its value on rank `root`.

    `variables` and `root` are code as well. hccl's broadcast takes a list and returns a list.
    """
    operators = site.import_name("hccl_ops")
    group = proto.tensorflow_name(site, "group")
    return f"{group}(*[var.assign({operators}.broadcast([var], {root})[0]) for var in {variables}])"
