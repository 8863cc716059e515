"""horovod.tensorflow.mpi_ops, from which scripts import ranks and collectives that horovod.tensorflow has too."""

# ruff: noqa: F401 - names that scripts import from here

from .._ranks import init, is_initialized, local_rank, local_size, mpi_threads_supported, rank, shutdown, size
from ._exchanges import Adasum, Average, Max, Min, Product, Sum, allgather, allreduce, broadcast
