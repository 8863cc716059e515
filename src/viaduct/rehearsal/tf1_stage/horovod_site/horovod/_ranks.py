"""Who is who; asked before init(), an error as in Horovod."""

from __future__ import annotations

from typing import Any

from viaduct.rehearsal.tf1_stage import state

_up = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    global _up
    _up = True


def shutdown() -> None:
    global _up
    _up = False


def is_initialized() -> bool:
    return _up


def require_init(value: int) -> int:
    """Return the value; raise before init(), as Horovod does."""
    if not _up:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return value


def rank() -> int:
    return require_init(state.rank())


def size() -> int:
    return require_init(state.size())


def local_rank() -> int:
    return require_init(state.local_rank())


def local_size() -> int:
    return require_init(state.local_size())


def cross_rank() -> int:
    return require_init(state.rank() // state.local_size())


def cross_size() -> int:
    return require_init(state.size() // state.local_size())


def is_homogeneous() -> bool:
    return bool(require_init(1))


def mpi_threads_supported() -> bool:
    return bool(require_init(0))


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return True


def gloo_built() -> bool:
    return True


def nccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return False


def rocm_built() -> bool:
    return False


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False
