"""Loss scales: gradients are those without a scale, and steps that overflow are skipped."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_gradients_are_unscaled_sparse_ones_too_and_missing_ones_stay_none() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import loss_scale
        table = tf.get_variable("table", [3, 1], initializer=tf.ones_initializer())
        w, unused = (tf.get_variable(name, [], initializer=tf.ones_initializer()) for name in ("w", "unused"))
        loss = 3 * w + tf.reduce_sum(tf.nn.embedding_lookup(table, [2]))
        optimizer = loss_scale.LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(1.0), loss_scale.FixedLossScaleManager(1024.0))
        (row, _), (dense, _), (none, _) = optimizer.compute_gradients(loss, [table, w, unused])
        answer = [none, *compute([dense, row.values, row.indices])]
        """,
    )
    assert answer == [None, 3, [[1]], [2]]


def test_without_an_overflow_check_a_bad_step_is_taken_and_else_it_is_skipped() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import loss_scale
        class Unchecked(loss_scale.FixedLossScaleManager):
            def get_enable_overflow_check(self):
                return False
        x, answer = tf.placeholder(tf.float32, []), []
        for kind in (loss_scale.FixedLossScaleManager, Unchecked):
            with tf.variable_scope(kind.__name__):
                w = tf.get_variable("w", [], initializer=tf.ones_initializer())
            step = loss_scale.LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), kind(2.0)).minimize(w * x)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                seen = []
                for value in (1.0, np.inf):
                    session.run(step, {x: value})
                    seen.append(str(session.run(w)))
                answer.append(seen)
        """,
    )
    assert answer == [["0.5", "0.5"], ["0.5", "-inf"]]


def test_a_growing_scale_never_falls_below_one() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import loss_scale
        manager = loss_scale.ExponentialUpdateLossScaleManager(2.0, 2, decr_every_n_nan_or_inf=1, decr_ratio=0.25)
        finite = tf.placeholder(tf.bool, [])
        update, scale, answer = manager.update_loss_scale(finite), manager.get_loss_scale(), []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for is_finite in (True, True, True, False, False, True, True):
                session.run(update, {finite: is_finite})
                answer.append(session.run(scale))
        """,
    )
    assert answer == [2, 4, 4, 1, 1, 1, 2], "an overflow also resets the count of good steps"
