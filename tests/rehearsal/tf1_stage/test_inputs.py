"""Shapes and dtypes that a training graph for the NPU may have."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(
    ("call", "limit"),
    [
        ("data.batch(2, True)", None),
        ("data.batch(2, drop_remainder=True)", None),
        ("data.padded_batch(2, [], drop_remainder=True)", None),
        ("data.batch(2)", "drop-remainder"),
        ("data.batch(2, drop_remainder=False)", "drop-remainder"),
        ("data.padded_batch(2, [])", "drop-remainder"),
        ("data.apply(tf.data.experimental.map_and_batch(lambda x: x, 2))", "drop-remainder"),
    ],
)
def test_only_batches_whose_last_one_may_be_smaller_are_reported(call: str, limit: str | None) -> None:
    assert evaluate("npu", f"data = tf.data.Dataset.range(4)\nanswer = met(lambda: {call})") == limit


def test_feeds_of_one_shape_are_fine_whatever_holds_them_and_another_shape_is_reported() -> None:
    answer = evaluate(
        "npu",
        """
        from viaduct.rehearsal.tf1_stage.inputs import shape_of
        x = tf.placeholder(tf.float32, [None, 2])
        w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
        loss = tf.reduce_sum(x * w)
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            feeds = [np.ones([3, 2]), [[1, 2]] * 3, np.ones([4, 2])]
            answer = [met(lambda: session.run(step, {x: feed})) for feed in feeds]
            answer.append(met(lambda: session.run(loss, {x: np.ones([5, 2])})))
        answer += [shape_of(None), shape_of(3.0), shape_of([[1], [2, 3]])]
        """,
    )
    assert answer == [None, None, "static-shapes", None, None, [], None], "what does not train may change its shape"


def test_an_unknown_dimension_of_the_data_is_reported_when_it_trains() -> None:
    answer = evaluate(
        "npu",
        """
        def read(size):
            data = tf.data.Dataset.from_generator(lambda: iter([np.ones(2)] * 9), tf.float32, [size]).repeat()
            return tf.reduce_sum(data.make_one_shot_iterator().get_next())
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        answer = []
        for size in (2, None):
            loss = w * read(size)
            step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                answer += [met(lambda: session.run(loss)), met(lambda: session.run(step))]
        """,
    )
    assert answer == [None, None, None, "static-shapes"]
