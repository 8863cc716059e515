"""Ranks and sizes; asking before init() is an error as in Horovod."""

from __future__ import annotations

from typing import Any

from viaduct.rehearsal.tf1_stage import state

_up = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Mark Horovod as initialised; ranks come from the environment."""
    global _up
    _up = True


def shutdown() -> None:
    """Mark Horovod as ended."""
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
    """Return this process's rank."""
    return require_init(state.rank())


def size() -> int:
    """Return the number of ranks."""
    return require_init(state.size())


def local_rank() -> int:
    """Return this process's rank on its machine."""
    return require_init(state.local_rank())


def local_size() -> int:
    """Return the number of ranks on this machine."""
    return require_init(state.local_size())


def cross_rank() -> int:
    """Return the number of this machine."""
    return require_init(state.rank() // state.local_size())


def cross_size() -> int:
    """Return the number of machines."""
    return require_init(state.size() // state.local_size())


def is_homogeneous() -> bool:
    """Return True: every machine has the same number of ranks."""
    return bool(require_init(1))


def mpi_threads_supported() -> bool:
    """Return False: there is no MPI."""
    return bool(require_init(0))


def mpi_enabled() -> bool:
    """Return False: there is no MPI."""
    return False


def mpi_built() -> bool:
    """Return False: there is no MPI."""
    return False


def gloo_enabled() -> bool:
    """Return True: collectives go through gloo."""
    return True


def gloo_built() -> bool:
    """Return True: collectives go through gloo."""
    return True


def nccl_built() -> bool:
    """Return False: there is no NCCL."""
    return False


def cuda_built() -> bool:
    """Return False: there is no CUDA."""
    return False


def rocm_built() -> bool:
    """Return False: there is no ROCm."""
    return False


def ddl_built() -> bool:
    """Return False: there is no DDL."""
    return False


def ccl_built() -> bool:
    """Return False: there is no oneCCL."""
    return False
