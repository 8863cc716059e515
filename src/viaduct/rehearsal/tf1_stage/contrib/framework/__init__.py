"""tf.contrib.framework: arg_scope, variables by scope and name, checkpoints."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.util import nest

from ._scopes import add_arg_scope, arg_scope, arg_scoped_arguments, current_arg_scope, has_arg_scope

assert_global_step = tf.train.assert_global_step
create_global_step = tf.train.create_global_step
get_global_step = tf.train.get_global_step
get_or_create_global_step = tf.train.get_or_create_global_step
init_from_checkpoint = tf.train.init_from_checkpoint
list_variables = tf.train.list_variables
load_checkpoint = tf.train.load_checkpoint
load_variable = tf.train.load_variable
sort = tf.sort


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
) -> Any:
    """Return a variable; caching_device, device, partitioner and custom_getter have no effect."""
    return tf.get_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=list(collections) if collections is not None else None,
        use_resource=use_resource,
    )


@add_arg_scope
def model_variable(name: str, shape: Any = None, collections: Any = None, **kwargs: Any) -> Any:
    """Return a variable that is also in the collection of the model's variables."""
    names = [tf.GraphKeys.GLOBAL_VARIABLES, *(collections or ()), tf.GraphKeys.MODEL_VARIABLES]
    return variable(name, shape, collections=list(dict.fromkeys(names)), **kwargs)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = tf.GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    variables = tf.get_collection(collection, getattr(scope, "name", scope))
    return [v for v in variables if suffix is None or v.op.name.endswith(suffix)]


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    return get_variables(scope, suffix, tf.GraphKeys.MODEL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    return get_variables(scope, suffix, tf.GraphKeys.TRAINABLE_VARIABLES)


def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """Return the variables of the included scopes without the excluded ones."""
    included = get_variables() if include is None else [v for scope in include for v in get_variables(scope)]
    excluded = {v.op.name for scope in exclude or [] for v in get_variables(scope)}
    return [v for v in included if v.op.name not in excluded]


def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Any:
    """Return a function that restores variables from a checkpoint into a session."""
    if ignore_missing_vars:
        saved = dict(tf.train.list_variables(model_path))
        var_list = {name: v for name, v in by_name(var_list).items() if name in saved}
    saver = tf.train.Saver(var_list, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)


def by_name(var_list: Any) -> dict[str, Any]:
    """Return variables by their names in a checkpoint; a list is keyed by the variables' own names."""
    return var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """Return the operator that restores variables from a checkpoint, and the feed_dict to run it with."""
    reader = tf.train.load_checkpoint(model_path)
    feeds, assigns = {}, []
    for name, v in by_name(var_list).items():
        if not reader.has_tensor(name):
            if ignore_missing_vars:
                continue
            raise ValueError(f"Checkpoint is missing variable [{name}]")
        value = reader.get_tensor(name)
        placeholder = tf.placeholder(v.dtype.base_dtype, value.shape)
        feeds[placeholder] = value
        assigns.append(tf.assign(v, placeholder))
    return tf.group(*assigns), feeds
