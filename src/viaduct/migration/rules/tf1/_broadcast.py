"""Broadcast of variables from one rank. Not a rule: Horovod's and the session's broadcasts share it."""

from __future__ import annotations

from viaduct.cards.tensorflow_api import HCCL_OPERATORS, full_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.sessions import MONITORED, PLAIN

ESTIMATORS = (
    *("tensorflow.estimator.Estimator", "tensorflow.estimator.tpu.TPUEstimator"),
    *(full_name("NPUEstimator"), "tensorflow.keras.estimator.model_to_estimator"),
)
SESSIONS = (*PLAIN, *MONITORED, "tensorflow.train.MonitoredSession", "tensorflow.train.Supervisor")
HCCL = f"{HCCL_OPERATORS}.broadcast"
HOOK = full_name("NPUBroadcastGlobalVariablesHook")


def estimator_trains(site: Site) -> bool:
    """Return True if this file opens no session, and it or another file of the project makes an Estimator."""
    called, project = site.work.index.calls, site.work.project.mentions
    if any(name in called for name in SESSIONS):
        return False
    return any(name in called or name in project for name in ESTIMATORS)


def render_trainable_variables(site: Site) -> str:
    return f"{proto.tensorflow_name(site, 'trainable_variables')}()"


def render_broadcast(site: Site, variables: str, root: str = "0") -> str:
    """Return the operation that assigns each variable the value of rank `root`.

    hccl's broadcast takes a list and returns a list.
    """
    operators = site.need("hccl_ops")
    group = proto.tensorflow_name(site, "group")
    return f"{group}(*[var.assign({operators}.broadcast([var], {root})[0]) for var in {variables}])"
