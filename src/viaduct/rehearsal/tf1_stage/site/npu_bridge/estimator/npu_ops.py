"""Operators of the NPU, composed of TensorFlow's own."""

from __future__ import annotations

import collections as _collections
import queue as _queue
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import state

# ---- life cycle


def NPUInit(name: str | None = None) -> Any:
    """Return the operator that starts communication."""
    return make_host_op(lambda: state.set_communication(True), [], name or "NPUInit")


def NPUShutdown(name: str | None = None) -> Any:
    """Return the operator that ends communication."""
    return make_host_op(lambda: state.set_communication(False), [], name or "NPUShutdown")


def initialize_system(name: str | None = None) -> Any:
    refuse_eager("initialize_system")
    return NPUInit(name)


def shutdown_system(name: str | None = None) -> Any:
    refuse_eager("shutdown_system")
    return NPUShutdown(name)


def make_host_op(function: Callable[..., Any], tensors: list[Any], name: str) -> Any:
    """Return an operator that calls a Python function with the values of tensors, and has no result."""

    def call(*arrays: Any) -> Any:
        function(*arrays)
        return np.int32(0)  # numpy_function needs a result

    return tf.numpy_function(call, tensors, tf.int32, name=name).op


def refuse_eager(name: str) -> None:
    """Report a call in eager mode, which the NPU does not support."""
    if tf.executing_eagerly():
        limits.report_violation("eager", "operator", function=f"npu_ops.{name}")
        raise RuntimeError(f"tf.{name}() is not compatible with eager execution.")


# ---- layers


def dropout(x: Any, keep_prob: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> Any:
    """Drop values; the others are scaled by 1 / keep_prob. keep_prob 1.0 returns x itself."""
    refuse_eager("dropout")
    x = tf.convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ValueError(
            f"x has to be a floating point tensor since it's going to be scaled. Got a {x.dtype} tensor instead."
        )
    if isinstance(keep_prob, (int, float)):
        if not 0 < keep_prob <= 1:
            raise ValueError(f"keep_prob must be a scalar tensor or a float in the range (0, 1], got {keep_prob:g}")
        if keep_prob == 1.0:
            return x
    return tf.nn.dropout(x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)


def LARS(
    inputs_w: Sequence[Any],
    inputs_g: Sequence[Any],
    weight_decay: Any,
    hyperpara: float = 0.001,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> list[Any]:
    """Add weight decay to each gradient, and scale it by the ratio of the weight's norm to the gradient's."""
    with tf.name_scope(name or "LARS"):
        return [
            scale_gradient(weight, gradient, weight_decay, hyperpara, epsilon)
            for weight, gradient in zip(inputs_w, inputs_g, strict=True)
        ]


def LARSV2(
    input_weight: Any,
    input_grad: Any,
    weight_decay: Any,
    learning_rate: Any,
    hyperpara: float = 0.001,
    epsilon: float = 1e-5,
    use_clip: bool = False,
    name: str | None = None,
) -> Any:
    """Scale one weight's gradient as LARS does; with use_clip the rate never exceeds learning_rate."""
    with tf.name_scope(name or "LARSV2"):
        bound = learning_rate if use_clip else None
        return scale_gradient(input_weight, input_grad, weight_decay, hyperpara, epsilon, bound)


def scale_gradient(weight: Any, gradient: Any, decay: Any, trust: float, epsilon: float, bound: Any = None) -> Any:
    """Return the LARS-scaled gradient. With `bound` the ratio of the norms is divided by it and is at most 1."""
    weight_norm, gradient_norm = tf.norm(weight), tf.norm(gradient)
    ratio = trust * weight_norm / (gradient_norm + decay * weight_norm + epsilon)
    if bound is not None:
        ratio = tf.clip_by_value(ratio / bound, 0.0, 1.0)
    return ratio * (gradient + decay * weight)


# ---- channels for tensors from a running graph

_channels: dict[str, _queue.Queue[list[Any]]] = _collections.defaultdict(_queue.Queue)


def outfeed_enqueue_op(channel_name: str, inputs: Sequence[Any], name: str | None = None) -> Any:
    """Return the operator that puts tensors into a channel."""

    def put(*arrays: Any) -> None:
        _channels[channel_name].put([np.array(array) for array in arrays])

    return make_host_op(put, list(inputs), name or "OutfeedEnqueueOp")


def outfeed_dequeue_op(
    channel_name: str, output_types: Sequence[Any], output_shapes: Sequence[Any], name: str | None = None
) -> list[Any]:
    """Return the next tensors of a channel; the operator waits for 60 seconds at most."""

    def get() -> list[Any]:
        return _channels[channel_name].get(timeout=60)

    outputs = tf.numpy_function(get, [], list(output_types), name=name or "OutfeedDequeueOp")
    for output, shape in zip(outputs, output_shapes, strict=True):
        output.set_shape(shape)
    return list(outputs)


def stop_outfeed_dequeue_op(channel_name: str, name: str | None = None) -> Any:
    """Return the operator that closes a channel."""
    return make_host_op(lambda: _channels.pop(channel_name, None), [], name or "StopOutfeedDequeueOp")


# ---- fused operators, composed of TensorFlow's


def basic_lstm_cell(
    x: Any,
    h: Any,
    c: Any,
    w: Any,
    b: Any,
    keep_prob: float = 1.0,
    forget_bias: float = 1.0,
    state_is_tuple: bool = True,
    activation: str = "tanh",
    name: str | None = None,
) -> tuple[Any, ...]:
    """Return the new c and h after one step of an LSTM, then the gates i, j, f, o and tanh(c)."""
    with tf.name_scope(name or "BasicLSTMCell"):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), w) + b, 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + forget_bias), tf.sigmoid(o)
        new_c = c * f + i * j
        tanh_c = tf.tanh(new_c)
        return new_c, tanh_c * o, i, j, f, o, tanh_c


def adam_apply_one_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    add2_y: Any,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Take one step of Adam without weight decay; the inputs are those of adam_apply_one_with_decay_assign."""
    inputs = (input0, input1, input2, input3, input4, mul0_x, mul1_x, mul2_x, mul3_x)
    return adam_apply_one_with_decay_assign(*inputs, None, add2_y)


def adam_apply_one_with_decay_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    mul4_x: Any,
    add2_y: Any,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Take one step of Adam with weight decay; return the new second moment, first moment and weight.

    The inputs are gradient, second moment, first moment, weight and learning rate. mul0_x and mul1_x are the factors of
    the old first moment and the gradient, mul2_x and mul3_x those of the old second moment and the squared gradient.
    mul4_x is the decay, add2_y epsilon.
    """
    gradient, second, first, weight, rate = input0, input1, input2, input3, input4
    new_first = first * mul0_x + gradient * mul1_x
    new_second = second * mul2_x + tf.square(gradient) * mul3_x
    step = new_first / (tf.sqrt(new_second) + add2_y)
    if mul4_x is not None:
        step = step + weight * mul4_x
    moments = tf.assign(second, new_second), tf.assign(first, new_first)
    return (*moments, tf.assign(weight, weight - rate * step))


def scatter_elements(data: Any, indices: Any, updates: Any, axis: int = 0, name: str | None = None) -> Any:
    """Return `data` with `updates` at the positions `indices` along an axis.

    Along the other axes an update has the same position as in `updates`.
    """
    data, indices = tf.convert_to_tensor(data), tf.convert_to_tensor(indices)
    positions = tf.meshgrid(*[tf.range(size) for size in tf.unstack(tf.shape(indices))], indexing="ij")
    positions[axis] = tf.cast(indices, tf.int32)
    return tf.tensor_scatter_nd_update(data, tf.stack(positions, axis=-1), updates, name=name)


def k_means_centroids(
    x: Any, y: Any, sum_square_y: Any, sum_square_x: Any, use_actual_distance: bool = False, name: str | None = None
) -> tuple[Any, Any, Any]:
    """Assign the points, the rows of x, to the nearest centres, the rows of y.

    Return each centre's sum and count of points, and the sum of all points' distances to their centres. The distances
    are squared, and without `use_actual_distance` lack the point's own square.
    """
    distance = sum_square_y - 2 * tf.matmul(x, y, transpose_b=True) + (sum_square_x if use_actual_distance else 0)
    nearest = tf.argmin(distance, axis=1)
    membership = tf.one_hot(nearest, tf.shape(y)[0])
    counts = tf.reduce_sum(membership, axis=0)[:, None]
    return tf.matmul(membership, x, transpose_a=True), counts, tf.reduce_sum(tf.reduce_min(distance, axis=1))


def npu_onnx_graph_op(inputs: Sequence[Any], tout: Sequence[Any], model_path: str, name: str | None = None) -> Any:
    """Raise NotImplementedError: an ONNX model is compiled for the NPU only."""
    raise NotImplementedError("npu_onnx_graph_op compiles an ONNX model for the NPU, which a rehearsal does not have")


def channel_get_next(output_types: Any, output_shapes: Any, channel_name: str, name: str | None = None) -> Any:
    """Raise NotImplementedError: the queue is on the NPU."""
    raise NotImplementedError("channel_get_next reads a queue of the NPU; in a rehearsal data stays in tf.data")
