"""`from tensorflow.contrib.framework.python.ops import arg_scope, variables`: modules of the same functions."""

import tensorflow.contrib.framework as arg_scope  # type: ignore[import-not-found,unused-ignore]
import tensorflow.contrib.framework as variables  # type: ignore[import-not-found,unused-ignore]
from tensorflow.contrib.framework import add_arg_scope  # type: ignore[import-not-found,unused-ignore]

__all__ = ["add_arg_scope", "arg_scope", "variables"]
