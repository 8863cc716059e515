"""horovod.tensorflow.functions: where scripts also import the broadcast of variables from."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

from . import broadcast_global_variables, broadcast_variables
