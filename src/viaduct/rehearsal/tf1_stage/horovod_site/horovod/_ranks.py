"""Ranks and sizes, which raise ValueError before init(), and the libraries that Horovod was built with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from viaduct.rehearsal.tf1_stage import state as _state

_initialized = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Mark Horovod as initialised; ranks come from the environment."""
    global _initialized
    _initialized = True


def shutdown() -> None:
    """Mark Horovod as ended."""
    global _initialized
    _initialized = False


def is_initialized() -> bool:
    return _initialized


def _require_init(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function with the same result that raises ValueError before init()."""

    def call_after_init() -> Any:
        if not _initialized:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return function()

    return call_after_init


rank, size = _require_init(_state.rank), _require_init(_state.size)
local_rank, local_size = _require_init(_state.local_rank), _require_init(_state.local_size)
cross_rank = _require_init(lambda: _state.rank() // _state.local_size())  # the number of this machine
cross_size = _require_init(lambda: _state.size() // _state.local_size())  # the number of machines
is_homogeneous = _require_init(lambda: True)  # every machine has the same number of ranks
mpi_threads_supported = _require_init(lambda: False)


def gloo_built() -> bool:
    return True


def mpi_built() -> bool:
    return False


gloo_enabled = gloo_built
mpi_enabled = nccl_built = cuda_built = rocm_built = ddl_built = ccl_built = mpi_built
