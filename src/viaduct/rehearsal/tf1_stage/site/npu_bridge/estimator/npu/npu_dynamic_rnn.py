"""DynamicRNN, DynamicGRUV2 and DynamicAUGRU, each one operator on the NPU, as loops over time with the same weights.

The arguments keep_prob and is_training, and a GRU's cell_clip, have no effect.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

# Values that the NPU's operators support, by argument.
SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "cell_type": ("LSTM",),
    "direction": ("UNIDIRECTIONAL", "REDIRECTIONAL"),  # in npu_bridge REDIRECTIONAL means backwards in time
    "cell_depth": (1,),
    "use_peephole": (False,),
    "num_proj": (0,),
    "time_major": (True,),
    "activation": ("tanh",),
    "gate_order": ("zrh", "rzh"),
}


class RecurrentLayer(tf.layers.Layer):  # type: ignore[misc]
    """Base class, which checks the arguments as the NPU's operators do, and runs `step` over time.

    `arguments` are the locals() of the subclass's `__init__`.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(dtype=tf.as_dtype(arguments["dtype"]).name)
        for name, supported in SUPPORTED_VALUES.items():
            if name in arguments and arguments[name] not in supported:
                raise ValueError(f"{name} should be one of {list(supported)}, got {arguments[name]!r}")
        self._hidden_size, self._direction = arguments["hidden_size"], arguments["direction"]
        self._cell_clip = arguments["cell_clip"]

    def run_over_time(self, x: Any, seq_length: Any, *initial_states: Any) -> tuple[Any, ...]:
        """Return the outputs of all steps, each stacked over time. An initial state None stands for zeros.

        After a sequence's end the states do not change, and the first output is zero.
        """
        zeros = tf.zeros([tf.shape(x)[1], self._hidden_size], x.dtype)
        states = tuple(zeros if h is None else tf.reshape(h, [-1, self._hidden_size]) for h in initial_states)
        reverse = self._direction == "REDIRECTIONAL"
        steps = tf.unstack(x, axis=0)
        outputs_by_step: list[tuple[Any, ...]] = []
        for time in reversed(range(len(steps))) if reverse else range(len(steps)):
            new_states, outputs = self.step(time, steps[time], states)
            if seq_length is not None:
                is_inside = tf.cast(tf.less(time, seq_length), x.dtype)[:, None]  # 1.0 before a sequence's end
                pairs = zip(new_states, states, strict=True)
                new_states = tuple(is_inside * new + (1 - is_inside) * old for new, old in pairs)
                outputs = (is_inside * outputs[0], *new_states, *outputs[1 + len(new_states) :])
            states = new_states
            outputs_by_step.append(outputs)
        ordered = outputs_by_step[::-1] if reverse else outputs_by_step
        return tuple(tf.stack(over_time) for over_time in zip(*ordered, strict=True))

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the new states, and the outputs of one step: the layer's output, the states, then others."""
        raise NotImplementedError


def depth_of(input_shape: Any) -> int:
    """Return the size of the last axis."""
    last = input_shape[-1]
    return int(getattr(last, "value", last))


class DynamicRNN(RecurrentLayer):
    """An LSTM. It returns y, output_h, output_c, i, j, f, o, tanhc, each of shape [time, batch, hidden]."""

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        cell_type: str = "LSTM",
        direction: str = "UNIDIRECTIONAL",
        cell_depth: int = 1,
        use_peephole: bool = False,
        keep_prob: float = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        forget_bias: float = 0.0,
        is_training: bool = True,
    ) -> None:
        super().__init__(locals())
        self._forget_bias = forget_bias

    def build(self, input_shape: Any) -> None:
        rows, columns = depth_of(input_shape) + self._hidden_size, 4 * self._hidden_size
        self._rnn_w = self.add_weight(
            "dynamicrnn/w", shape=[rows, columns], initializer=tf.glorot_uniform_initializer()
        )
        self._rnn_b = self.add_weight("dynamicrnn/b", shape=[columns], initializer=tf.zeros_initializer())
        super().build(input_shape)

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None, init_c: Any = None) -> tuple[Any, ...]:
        return self.run_over_time(x, seq_length, init_h, init_c)

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        h, c = states
        i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), self._rnn_w) + self._rnn_b, 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + self._forget_bias), tf.sigmoid(o)
        new_c = c * f + i * j
        if self._cell_clip > 0:
            new_c = tf.clip_by_value(new_c, -self._cell_clip, self._cell_clip)
        tanh_c = tf.tanh(new_c)
        new_h = tanh_c * o
        return (new_h, new_c), (new_h, new_h, new_c, i, j, f, o, tanh_c)


class DynamicGRUV2(RecurrentLayer):
    """A GRU. It returns y, output_h, update, reset, new, hidden_new, each of shape [time, batch, hidden]."""

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        direction: str = "UNIDIRECTIONAL",
        cell_depth: int = 1,
        keep_prob: float = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        gate_order: str = "zrh",
        reset_after: bool = True,
        is_training: bool = True,
    ) -> None:
        super().__init__(locals())
        self._gate_order, self._reset_after = gate_order, reset_after

    def build(self, input_shape: Any) -> None:
        bound = 1.0 / self._hidden_size**0.5
        columns, uniform = 3 * self._hidden_size, tf.random_uniform_initializer(-bound, bound)

        def add(name: str, *shape: int) -> Any:
            return self.add_weight(f"dynamicgruv2/{name}", shape=shape, initializer=uniform)

        self._weight_input = add("weight_input", depth_of(input_shape), columns)
        self._weight_hidden = add("weight_hidden", self._hidden_size, columns)
        self._bias_input, self._bias_hidden = add("bias_input", columns), add("bias_hidden", columns)
        super().build(input_shape)

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None) -> tuple[Any, ...]:
        return self.run_over_time(x, seq_length, init_h)

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        (h,) = states
        update, reset, new, hidden_new = self.gates(x, h)
        new_h = update * h + (1 - update) * new
        return (new_h,), (new_h, new_h, update, reset, new, hidden_new)

    def gates(self, x: Any, h: Any) -> tuple[Any, Any, Any, Any]:
        """Return the update gate, the reset gate, the candidate state, and the candidate state's part from h."""
        size = self._hidden_size
        from_x = tf.split(tf.matmul(x, self._weight_input) + self._bias_input, 3, axis=1)
        from_h = tf.split(tf.matmul(h, self._weight_hidden) + self._bias_hidden, 3, axis=1)
        first, second = (
            tf.sigmoid(from_input + from_state) for from_input, from_state in zip(from_x[:2], from_h[:2], strict=True)
        )
        update, reset = (first, second) if self._gate_order == "zrh" else (second, first)
        if self._reset_after:
            return update, reset, tf.tanh(from_x[2] + reset * from_h[2]), from_h[2]
        hidden_new = tf.matmul(reset * h, self._weight_hidden[:, 2 * size :]) + self._bias_hidden[2 * size :]
        return update, reset, tf.tanh(from_x[2] + hidden_new), hidden_new


class DynamicAUGRU(DynamicGRUV2):
    """A GRU whose update gate is multiplied by 1 - the attention weight of the step.

    Outputs are those of DynamicGRUV2, with update_att, the multiplied gate, after update.
    """

    def call(  # type: ignore[override]
        self, x: Any, weight_att: Any, seq_length: Any = None, init_h: Any = None
    ) -> tuple[Any, ...]:
        """Run the GRU over time; `weight_att` has an attention weight for each step and sequence."""
        self._attention = tf.unstack(tf.reshape(weight_att, [tf.shape(x)[0], -1, 1]), int(x.shape[0]), axis=0)
        return self.run_over_time(x, seq_length, init_h)

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        (h,) = states
        update, reset, new, hidden_new = self.gates(x, h)
        update_att = (1 - self._attention[time]) * update
        new_h = update_att * h + (1 - update_att) * new
        return (new_h,), (new_h, new_h, update, update_att, reset, new, hidden_new)
