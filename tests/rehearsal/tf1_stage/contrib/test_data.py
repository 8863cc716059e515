"""Functions of tf.contrib.data, which became tf.data.experimental."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_the_last_smaller_batch_is_dropped_and_batches_are_taken_apart_again() -> None:
    answer = evaluate(
        "npu",
        """
        from tensorflow.contrib import data
        numbers = tf.data.Dataset.range(5)
        batches = numbers.apply(data.batch_and_drop_remainder(2))
        single = batches.apply(data.unbatch()).apply(data.prefetch_to_device("/gpu:0"))
        following = single.make_one_shot_iterator().get_next()
        with tf.Session() as session:
            seen = [session.run(following) for _ in range(4)]
            end = refusal(lambda: session.run(following))
        answer = [batches.output_shapes.as_list(), seen, end.partition(":")[0],
                  met(lambda: numbers.apply(data.map_and_batch(lambda x: x, 2)))]
        """,
    )
    assert answer == [[2], [0, 1, 2, 3], "OutOfRangeError", "drop-remainder"]
