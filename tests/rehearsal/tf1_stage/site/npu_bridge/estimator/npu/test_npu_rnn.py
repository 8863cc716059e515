"""dynamic_rnn, whose loop is one operator on the NPU."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_outputs_are_those_of_tensorflow_and_zero_after_the_end_of_a_sequence() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu.npu_rnn import npu_dynamic_rnn
        x = tf.constant(np.random.RandomState(0).randn(3, 2, 4), tf.float32)
        cell = tf.nn.rnn_cell.GRUCell(5)
        outputs, last = npu_dynamic_rnn(cell, x, dtype=tf.float32, sequence_length=[3, 1])
        steps, _ = npu_dynamic_rnn(cell, tf.unstack(x), dtype=tf.float32, sequence_length=[3, 1], scope="rnn")
        with tf.variable_scope("", reuse=True):
            expected, end = tf.nn.dynamic_rnn(cell, x, [3, 1], dtype=tf.float32, time_major=True)
        values = compute([tf.stack(outputs), expected, last, end])
        answer = [len(outputs), len(steps), float(np.abs(values[0] - values[1]).max()),
                  float(np.abs(values[2] - values[3]).max()), float(np.abs(values[0][1:, 1]).max())]
        """,
    )
    assert answer[:2] == [3, 3]
    assert max(answer[2:4]) < 1e-6
    assert answer[4] == 0
