"""Ranks of a script for one device, joined into data parallel training."""

from __future__ import annotations

from rehearsal.snippets import evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_ranks_begin_with_rank_0s_weights_and_average_but_not_gradients_with_respect_to_inputs() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import os
        from viaduct.rehearsal.tf1_stage import gradients, joining, sessions
        rank = float(os.environ["RANK_ID"])
        before = list(sessions.observers)
        joining.install()
        try:
            w = tf.get_variable("w", [], initializer=tf.constant_initializer(10 + rank))
            x = tf.constant(1 + 2 * rank)
            loss = w * x
            to_input = tf.gradients(loss, [w, x])[0]
            train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                start = session.run([w, to_input])
                session.run(train)
                answer = [*start, session.run(w)]
        finally:
            gradients.combine_over_ranks = None
            sessions.observers[:] = before
        """,
    )
    assert [answer[0] for answer in answers] == [10, 10], "rank 1 has begun at 11"
    assert [answer[1] for answer in answers] == [1, 3], "left to each rank"
    assert [answer[2] for answer in answers] == [8, 8], "10 less the mean of 1 and 3"
