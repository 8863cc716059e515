"""Recurrent layers that the NPU runs as one operator; here a loop over time, with the same weights and outputs."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class RecurrentLayer(tf.layers.Layer):  # type: ignore[misc]
    """Checks what the NPU's operators check, and runs `step` over time."""

    def __init__(self, hidden_size: int, dtype: Any, direction: str, cell_clip: float, **only: Any) -> None:
        super().__init__(dtype=tf.as_dtype(dtype).name)
        for name, (value, possible) in {**only, "direction": (direction, ("UNIDIRECTIONAL", "REDIRECTIONAL"))}.items():
            if value not in possible:
                raise ValueError(f"{name} should be one of {list(possible)}, got {value!r}")
        self._hidden_size, self._direction, self._cell_clip = hidden_size, direction, cell_clip

    def weight(self, name: str, shape: list[int], initializer: Any) -> Any:
        return self.add_weight(name, shape=shape, initializer=initializer)

    def over_time(self, x: Any, seq_length: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        """An output, the states and what else `step` shows, stacked over time. Past a sequence's end states stay and
        outputs are zero."""
        reverse = self._direction == "REDIRECTIONAL"
        steps = tf.unstack(x, axis=0)
        kept: list[tuple[Any, ...]] = []
        for time in reversed(range(len(steps))) if reverse else range(len(steps)):
            new, shown = self.step(time, steps[time], states)
            if seq_length is not None:
                alive = tf.cast(tf.less(time, seq_length), x.dtype)[:, None]
                new = tuple(alive * n + (1 - alive) * old for n, old in zip(new, states, strict=True))
                shown = (alive * shown[0], *new, *shown[1 + len(new) :])
            states = new
            kept.append(shown)
        ordered = kept[::-1] if reverse else kept
        return tuple(tf.stack(parts) for parts in zip(*ordered, strict=True))

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the outputs and states after one step of time."""
        raise NotImplementedError

    def zeros(self, x: Any, given: Any) -> Any:
        """Return the given first state, or zeros."""
        if given is None:
            return tf.zeros([tf.shape(x)[1], self._hidden_size], x.dtype)
        return tf.reshape(given, [-1, self._hidden_size])


def depth_of(input_shape: Any) -> int:
    """Return the size of the last axis."""
    last = input_shape[-1]
    return int(getattr(last, "value", last))


class DynamicRNN(RecurrentLayer):
    """An LSTM: y, output_h, output_c, i, j, f, o, tanhc, each [time, batch, hidden]."""

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
        super().__init__(
            hidden_size,
            dtype,
            direction,
            cell_clip,
            cell_type=(cell_type, ("LSTM",)),
            cell_depth=(cell_depth, (1,)),
            use_peephole=(use_peephole, (False,)),
            num_proj=(num_proj, (0,)),
            time_major=(time_major, (True,)),
            activation=(activation, ("tanh",)),
        )
        self._forget_bias = forget_bias

    def build(self, input_shape: Any) -> None:
        rows, columns = depth_of(input_shape) + self._hidden_size, 4 * self._hidden_size
        self._rnn_w = self.weight("dynamicrnn/w", [rows, columns], tf.glorot_uniform_initializer())
        self._rnn_b = self.weight("dynamicrnn/b", [columns], tf.zeros_initializer())
        super().build(input_shape)

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None, init_c: Any = None) -> tuple[Any, ...]:
        """Run the LSTM over time, from the given states or zeros."""
        return self.over_time(x, seq_length, (self.zeros(x, init_h), self.zeros(x, init_c)))

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return output and states of the LSTM after one step."""
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
    """A GRU: y, output_h, update, reset, new, hidden_new, each [time, batch, hidden]."""

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
        super().__init__(
            hidden_size,
            dtype,
            direction,
            cell_clip,
            cell_depth=(cell_depth, (1,)),
            num_proj=(num_proj, (0,)),
            time_major=(time_major, (True,)),
            activation=(activation, ("tanh",)),
            gate_order=(gate_order, ("zrh", "rzh")),
        )
        self._gate_order, self._reset_after = gate_order, reset_after

    def build(self, input_shape: Any) -> None:
        near = 1.0 / self._hidden_size**0.5
        columns, start = 3 * self._hidden_size, tf.random_uniform_initializer(-near, near)
        self._weight_input = self.weight("dynamicgruv2/weight_input", [depth_of(input_shape), columns], start)
        self._weight_hidden = self.weight("dynamicgruv2/weight_hidden", [self._hidden_size, columns], start)
        self._bias_input = self.weight("dynamicgruv2/bias_input", [columns], start)
        self._bias_hidden = self.weight("dynamicgruv2/bias_hidden", [columns], start)
        super().build(input_shape)

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None) -> tuple[Any, ...]:
        """Run the GRU over time, from the given state or zeros."""
        return self.over_time(x, seq_length, (self.zeros(x, init_h),))

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return output and state of the GRU after one step."""
        (h,) = states
        update, reset, new, hidden_new = self.gates(x, h)
        new_h = update * h + (1 - update) * new
        return (new_h,), (new_h, new_h, update, reset, new, hidden_new)

    def gates(self, x: Any, h: Any) -> tuple[Any, Any, Any, Any]:
        """Update, reset, the new state and what of the old one is in it."""
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
    """A GRU whose update gate is weakened by an attention weight of each step, [time, batch]; `update_att` behind
    `update` is what is left of it."""

    def call(  # type: ignore[override]
        self, x: Any, weight_att: Any, seq_length: Any = None, init_h: Any = None
    ) -> tuple[Any, ...]:
        """Run the GRU over time with weights of attention for each step."""
        self._attention = tf.unstack(tf.reshape(weight_att, [tf.shape(x)[0], -1, 1]), int(x.shape[0]), axis=0)
        return self.over_time(x, seq_length, (self.zeros(x, init_h),))

    def step(self, time: int, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return output and state after one step, the update weakened by the attention."""
        (h,) = states
        update, reset, new, hidden_new = self.gates(x, h)
        weakened = (1 - self._attention[time]) * update
        new_h = weakened * h + (1 - weakened) * new
        return (new_h,), (new_h, new_h, update, weakened, reset, new, hidden_new)
