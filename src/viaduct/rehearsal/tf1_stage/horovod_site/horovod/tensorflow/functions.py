"""horovod.tensorflow.functions: the broadcast of variables under another module's name."""

# ruff: noqa: F401 - names that scripts import from here

from . import broadcast_global_variables, broadcast_variables
