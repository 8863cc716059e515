"""npu_bridge's util: functions for loops on the device, for options of one graph, and for values shared by name."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import loops


def set_iteration_per_loop(sess: Any, train_op: Any, iterations_per_loop: int = 1) -> Any:
    """Return an operator that takes iterations_per_loop training steps in one run."""
    if not isinstance(iterations_per_loop, int) or iterations_per_loop < 1:
        raise ValueError(f"iterations_per_loop must be an positive integer, got {iterations_per_loop!r}")
    loop = IterationPerLoop()
    op = loop.create_iteration_per_loop_var(train_op)
    loop.load_iteration_per_loop_var(sess, iterations_per_loop)
    return op


class IterationPerLoop:
    """set_iteration_per_loop in two steps; the script may finalize the graph between them."""

    def create_iteration_per_loop_var(self, train_op: Any) -> Any:
        """Return a group of the training operator whose loop length can be set."""
        if not isinstance(train_op, tf.Operation):
            raise ValueError(f"train_op must be an instance of tf.Operation, got {type(train_op).__name__}")
        with train_op.graph.as_default():
            op = tf.group(train_op, name="IterationOp")
        loops.declare_loop(train_op.graph, op)
        return op

    def load_iteration_per_loop_var(self, sess: Any, iterations_per_loop: int = 1) -> None:
        loops.set_loop_counts(sess.graph, iterations_per_loop)


def set_graph_exec_config(
    fetch: Any,
    dynamic_input: bool = False,
    dynamic_graph_execute_mode: str = "dynamic_execute",
    dynamic_inputs_shape_range: str | None = None,
    is_train_graph: bool = False,
    experimental_config: Any = None,
) -> Any:
    """Check one option and return the fetch; the CPU compiles nothing."""
    if dynamic_graph_execute_mode not in ("lazy_recompile", "dynamic_execute"):
        raise ValueError(
            f"dynamic_graph_execute_mode must be lazy_recompile or dynamic_execute, got {dynamic_graph_execute_mode!r}"
        )
    return fetch


def npu_compile(sess: Any, *fetches: Any) -> None:
    """Raise an error for a wrong fetch; the NPU would compile the fetches."""
    from viaduct.rehearsal.tf1_stage.sessions import describe_run

    describe_run(sess, list(fetches), None)


def keep_tensors_dtypes(graph: Any, tensors: Any) -> None:
    """Raise an error for tensors of another graph; the CPU keeps all dtypes."""
    for tensor in tensors:
        graph.as_graph_element(tensor)


def get_ranksize() -> str:
    """Return RANK_SIZE or CM_WORKER_SIZE as text; raise ValueError if both are set."""
    sizes = [os.environ[name] for name in ("RANK_SIZE", "CM_WORKER_SIZE") if os.environ.get(name)]
    if len(sizes) > 1:
        raise ValueError("RANK_SIZE and CM_WORKER_SIZE cannot be configured at the same time")
    return sizes[0] if sizes else "1"


def variable_initializer_in_host(var_list: Any) -> Any:
    return tf.variables_initializer(var_list)


_values: dict[Any, Any] = {}  # values that scripts store with set_value


def global_dict_init() -> None:
    _values.clear()


def set_value(key: Any, value: Any) -> None:
    _values[key] = value


def get_value(key: Any, default: Any = None) -> Any:
    return _values.get(key, default)
