"""A training operator that runs updates, clips and stops at losses that are not finite."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_updates_run_first_multipliers_and_clipping_change_gradients_and_nan_stops() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib.slim import learning
        w, v = (tf.get_variable(name, [], initializer=tf.zeros_initializer()) for name in "wv")
        average = tf.get_variable("average", [], initializer=tf.zeros_initializer(), trainable=False)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_add(1.0))
        scale = tf.placeholder(tf.float32, [])
        train = learning.create_train_op(scale * (3 * w + v), tf.train.GradientDescentOptimizer(1.0),
                                         clip_gradient_norm=2, gradient_multipliers={"v": 0.5})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {scale: 1.0})
            numbers = session.run([w, v, average, tf.train.get_global_step()])
            answer = [numbers, refusal(lambda: session.run(train, {scale: np.nan}))]
        """,
    )
    assert answer[0] == [-2, -0.5, 1, 1]
    assert "LossTensor is inf or nan" in answer[1]


def test_training_ends_at_the_global_step_that_was_requested_and_begins_with_the_init_function() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib.slim import learning
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        start = w.assign(10.0)
        train = learning.create_train_op(tf.identity(w), tf.train.GradientDescentOptimizer(1.0))
        answer = learning.train(train, None, number_of_steps=3, init_fn=lambda session: session.run(start))
        """,
    )
    assert answer in (8, 7), "the loss of the third step, or the weight after it"
