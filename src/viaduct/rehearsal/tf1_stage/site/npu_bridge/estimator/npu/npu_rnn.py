"""npu_dynamic_rnn, one operator on the NPU, as TensorFlow's static_rnn."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def npu_dynamic_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
) -> tuple[Any, Any]:
    """Return the list of outputs and the last state, for a tensor [time, batch, depth] or a list of steps."""
    steps = list(inputs) if isinstance(inputs, (list, tuple)) else tf.unstack(inputs, axis=0)
    return tf.nn.static_rnn(cell, steps, initial_state, dtype, sequence_length, scope)  # type: ignore[no-any-return]
