"""tensorflow.contrib.framework.python.ops; both its modules, arg_scope and variables, are contrib.framework here."""

import tensorflow.contrib.framework as arg_scope  # type: ignore[import-not-found,unused-ignore]
import tensorflow.contrib.framework as variables  # type: ignore[import-not-found,unused-ignore]
from tensorflow.contrib.framework import add_arg_scope  # type: ignore[import-not-found,unused-ignore]

__all__ = ["add_arg_scope", "arg_scope", "variables"]
