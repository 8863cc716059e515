"""Recurrent layers that the NPU runs as one operator; here a loop over time, with the same weights and outputs."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class RecurrentLayer(tf.layers.Layer):  # type: ignore[misc]
    """Checks what the real ones check, and runs `step` over time."""

    gates = 4
    kinds: tuple[str, ...] = ("LSTM",)

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
        super().__init__(dtype=tf.as_dtype(dtype).name)
        check = {"cell_type": (cell_type, self.kinds), "direction": (direction, ("UNIDIRECTIONAL", "REDIRECTIONAL"))}
        for name, (value, allowed) in check.items():
            if value not in allowed:
                raise ValueError(f"{name} should be one of {list(allowed)}, got {value!r}")
        if not time_major or cell_depth != 1 or use_peephole or num_proj or activation != "tanh":
            raise ValueError(
                "time_major is True, cell_depth 1, use_peephole False, num_proj 0 and activation tanh only"
            )
        self._hidden_size, self._forget_bias, self._direction = hidden_size, forget_bias, direction
        self._keep_prob, self._cell_clip, self._is_training = keep_prob, cell_clip, is_training

    def build(self, input_shape: Any) -> None:
        depth = input_shape[-1].value if hasattr(input_shape[-1], "value") else int(input_shape[-1])
        rows, columns = depth + self._hidden_size, self.gates * self._hidden_size
        self._rnn_w = self.add_weight(
            "dynamicrnn/w", shape=[rows, columns], initializer=tf.glorot_uniform_initializer()
        )
        self._rnn_b = self.add_weight("dynamicrnn/b", shape=[columns], initializer=tf.zeros_initializer())
        super().build(input_shape)

    def over_time(self, x: Any, seq_length: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        """An output, the states and what else `step` shows, stacked over time. Past a sequence's end states stay and
        outputs are zero."""
        reverse = self._direction == "REDIRECTIONAL"
        steps = tf.unstack(x, axis=0)
        kept: list[tuple[Any, ...]] = []
        for time in reversed(range(len(steps))) if reverse else range(len(steps)):
            new, shown = self.step(steps[time], states)
            if seq_length is not None:
                alive = tf.cast(tf.less(time, seq_length), x.dtype)[:, None]
                new = tuple(alive * n + (1 - alive) * old for n, old in zip(new, states, strict=True))
                shown = (alive * shown[0], *new, *shown[1 + len(new) :])
            states = new
            kept.append(shown)
        ordered = kept[::-1] if reverse else kept
        return tuple(tf.stack(parts) for parts in zip(*ordered, strict=True))

    def step(self, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        raise NotImplementedError

    def zeros(self, x: Any, given: Any) -> Any:
        if given is None:
            return tf.zeros([tf.shape(x)[1], self._hidden_size], x.dtype)
        return tf.reshape(given, [-1, self._hidden_size])


class DynamicRNN(RecurrentLayer):
    """An LSTM: y, output_h, output_c, i, j, f, o, tanhc, each [time, batch, hidden]."""

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None, init_c: Any = None) -> tuple[Any, ...]:
        return self.over_time(x, seq_length, (self.zeros(x, init_h), self.zeros(x, init_c)))

    def step(self, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
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

    gates = 3
    kinds = ("GRU",)

    def __init__(self, hidden_size: int, dtype: Any, cell_type: str = "GRU", **named: Any) -> None:
        self._reset_after = named.pop("reset_after", True)
        super().__init__(hidden_size, dtype, cell_type, **named)

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None) -> tuple[Any, ...]:
        return self.over_time(x, seq_length, (self.zeros(x, init_h),))

    def step(self, x: Any, states: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        (h,) = states
        depth, size = int(x.shape[-1]), self._hidden_size
        from_x = tf.matmul(x, self._rnn_w[:depth]) + self._rnn_b
        from_h = tf.matmul(h, self._rnn_w[depth:])
        update = tf.sigmoid(from_x[:, :size] + from_h[:, :size])
        reset = tf.sigmoid(from_x[:, size : 2 * size] + from_h[:, size : 2 * size])
        hidden_new = (
            from_h[:, 2 * size :] if self._reset_after else tf.matmul(reset * h, self._rnn_w[depth:, 2 * size :])
        )
        new = tf.tanh(from_x[:, 2 * size :] + (reset * hidden_new if self._reset_after else hidden_new))
        new_h = self.mixed(update, new, h)
        return (new_h,), (new_h, new_h, update, reset, new, hidden_new)

    def mixed(self, update: Any, new: Any, h: Any) -> Any:
        return update * h + (1 - update) * new


class DynamicAUGRU(DynamicGRUV2):
    """A GRU whose update gate is weakened by an attention weight of each step, [time, batch]."""

    def call(  # type: ignore[override]
        self, x: Any, weight_att: Any = None, seq_length: Any = None, init_h: Any = None
    ) -> tuple[Any, ...]:
        self._attention = iter(tf.unstack(tf.expand_dims(weight_att, -1), axis=0)) if weight_att is not None else None
        return self.over_time(x, seq_length, (self.zeros(x, init_h),))

    def mixed(self, update: Any, new: Any, h: Any) -> Any:
        if self._attention is not None:
            update = (1.0 - next(self._attention)) * update
        return super().mixed(update, new, h)
