"""State that the stand-in packages share: the card to stand in for, this process's rank, whether ranks can communicate.

Importing this module needs no TensorFlow.
"""

from __future__ import annotations

import os

from viaduct.rehearsal.plan import Platform

platform: Platform | None = None  # None until `tf1_stage.install`
_has_communication = False


def set_default_ranks() -> None:
    """Set missing RANK_SIZE and RANK_ID, and on the NPU DEVICE_ID, to torchrun's WORLD_SIZE, RANK and LOCAL_RANK.

    Without torchrun's variables there is one rank.
    """
    defaults = {"RANK_SIZE": os.environ.get("WORLD_SIZE", "1"), "RANK_ID": os.environ.get("RANK", "0")}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if platform == "npu":
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
    """Note that communication between the ranks has started or ended.

    It starts with an NPU session's first run or initialize_system. It ends with shutdown_system, or with the end of an
    Estimator's train or evaluate.
    """
    global _has_communication
    _has_communication = is_up
