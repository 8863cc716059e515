"""State that the stand-in packages share: the kind of card, this process's rank, the state of communication.

Importing this module needs no TensorFlow.
"""

from __future__ import annotations

import os

from viaduct.rehearsal.plan import On

on: On | None = None  # None until `install`
_has_communication = False


def set_default_ranks() -> None:
    """Set missing RANK_SIZE and RANK_ID, and on the NPU DEVICE_ID, by torch's WORLD_SIZE, RANK and LOCAL_RANK.

    Without torch's variables there is one rank.
    """
    defaults = {"RANK_SIZE": os.environ.get("WORLD_SIZE", "1"), "RANK_ID": os.environ.get("RANK", "0")}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if on == "npu":
        os.environ.setdefault("DEVICE_ID", os.environ.get("LOCAL_RANK", os.environ["RANK_ID"]))


def rank() -> int:
    return int(os.environ.get("RANK_ID") or os.environ.get("RANK") or 0)


def size() -> int:
    return int(os.environ.get("RANK_SIZE") or os.environ.get("WORLD_SIZE") or 1)


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK") or rank() % local_size())


def local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE") or size())


def has_communication() -> bool:
    return _has_communication


def set_communication(is_up: bool) -> None:
    """Set the state of communication.

    Communication starts with an NPU session's first run or initialize_system, and ends with shutdown_system or an
    Estimator's run.
    """
    global _has_communication
    _has_communication = is_up
