"""Sizes of variables and operators."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_sizes_are_counted_and_unknown_ones_are_zero() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib.slim import model_analyzer
        tf.get_variable("half", [2, 3], tf.float16)
        tf.get_variable("whole", [4])
        variables = tf.global_variables()
        with tf.Graph().as_default() as graph:
            tf.placeholder(tf.float32, [None, 3])
            tf.zeros([5])
        answer = [model_analyzer.analyze_vars(variables), model_analyzer.analyze_ops(graph),
                  model_analyzer.tensor_description(variables[0])]
        """,
    )
    assert answer[0] == [10, 28]
    assert answer[1] == 5
    assert answer[2] == "(float16_ref [2, 3])" or answer[2] == "(float16 [2, 3])"
