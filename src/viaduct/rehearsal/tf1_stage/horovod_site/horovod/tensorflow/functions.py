"""horovod.tensorflow.functions, from which scripts import functions that horovod.tensorflow has too."""

# ruff: noqa: F401 - names that scripts import from here

from . import broadcast_global_variables, broadcast_variables
