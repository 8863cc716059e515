"""Stacked bidirectional layers."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_each_layer_sees_both_directions_of_the_one_below() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import rnn
        cells = [[rnn.GRUCell(3), rnn.GRUCell(4)] for _ in range(2)]
        outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(*cells, tf.ones([2, 5, 1]), dtype=tf.float32)
        kernels = {v.op.name: v.shape.as_list() for v in tf.trainable_variables() if "gates/kernel" in v.op.name}
        values = compute([outputs, forward[-1], backward[-1]])
        ends = [np.array_equal(values[0][:, -1, :4], values[1]), np.array_equal(values[0][:, 0, 4:], values[2])]
        answer = [outputs.shape.as_list(), kernels, ends]
        """,
    )
    shape, kernels, ends = answer
    assert shape == [2, 5, 8]
    assert sorted(kernels.values()) == [[4, 6], [4, 6], [10, 8], [10, 8]], "1 + 3 inputs, then 2·3 + 4"
    assert all("/cell_" in name for name in kernels)
    assert ends == [True, True], "the last forward and the first backward output are the states"
