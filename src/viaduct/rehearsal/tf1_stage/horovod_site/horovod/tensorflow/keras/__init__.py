"""horovod.tensorflow.keras: ranks, collectives and the distributed optimizer for Keras."""

# ruff: noqa: F401 - names that scripts import from here

from ..._keras import DistributedOptimizer, allgather, allreduce, broadcast, broadcast_global_variables, load_model
from ..._ranks import init, is_initialized, local_rank, local_size, rank, shutdown, size
from .._exchanges import Adasum, Average, Sum
from ..compression import Compression
from . import callbacks
