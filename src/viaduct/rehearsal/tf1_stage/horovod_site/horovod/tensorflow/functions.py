"""horovod.tensorflow.functions, from which scripts import the broadcast of variables too."""

# ruff: noqa: F401 - names that scripts import from here

from . import broadcast_global_variables, broadcast_variables
