"""The optimizer of a TPU's shards."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_one_shard_takes_the_optimizers_own_step() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import tpu
        w = tf.get_variable("w", [], initializer=tf.ones_initializer())
        step = tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.5)).minimize(w * w)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            answer = session.run(w)
        """,
    )
    assert answer == 0
