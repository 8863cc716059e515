"""Calls of TensorFlow 1 that open a session, and which of their arguments is the ConfigProto.

    CONFIG_ARGUMENTS["tensorflow.Session"]    ("config", 2)    tf.Session(config=config) or tf.Session("", None, config)

A slot is (keyword, position). Positions count from 0, without `self`; -1: the position differs between releases of
TensorFlow, so only the keyword is used.
"""

from __future__ import annotations

SESSION_CLASSES = (
    "tensorflow.Session", "tensorflow.InteractiveSession",
    "tensorflow.python.client.session.Session", "tensorflow.python.client.session.InteractiveSession",
)  # fmt: skip
MONITORED_SESSIONS = ("tensorflow.train.MonitoredTrainingSession", "tensorflow.train.SingularMonitoredSession")
SLIM = ("tensorflow.contrib.slim", "tf_slim")
# Qualified name of a class or function -> slot.
CONFIG_ARGUMENTS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(SESSION_CLASSES, ("config", 2)),
    "tensorflow.train.MonitoredTrainingSession": ("config", 9),
    "tensorflow.train.SingularMonitoredSession": ("config", 3),
    "tensorflow.train.ChiefSessionCreator": ("config", 2),
    "tensorflow.train.WorkerSessionCreator": ("config", 2),
    "tensorflow.contrib.training.train": ("config", 9),
    "tensorflow.contrib.training.evaluate_once": ("config", 8),
    "tensorflow.contrib.training.evaluate_repeatedly": ("config", 9),
    **{f"{slim}.learning.train": ("session_config", 22) for slim in SLIM},
    **{f"{slim}.evaluation.evaluate_once": ("session_config", 13) for slim in SLIM},
    **{f"{slim}.evaluation.evaluation_loop": ("session_config", -1) for slim in SLIM},
}
# (kind of the object as in values.CONSTRUCTORS, name of its method) -> slot.
CONFIG_ARGUMENTS_BY_KIND_AND_METHOD: dict[tuple[str, str], tuple[str, int]] = {
    ("supervisor", "managed_session"): ("config", 1),
    ("supervisor", "prepare_or_wait_for_session"): ("config", 1),
    ("session_manager", "prepare_session"): ("config", 7),
    ("session_manager", "recover_session"): ("config", 6),
    ("session_manager", "wait_for_session"): ("config", 1),
}
# Name of a method -> slot: no two kinds have a method of the same name.
CONFIG_ARGUMENTS_BY_METHOD = {method: slot for (_, method), slot in CONFIG_ARGUMENTS_BY_KIND_AND_METHOD.items()}
# Classes and functions that return a session, which has to be closed.
CLOSABLE_SESSIONS = (*SESSION_CLASSES, *MONITORED_SESSIONS, "tensorflow.train.MonitoredSession")
