"""The tensors of a run: which are fetched, and in which dtype."""

from __future__ import annotations

import numpy as np

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow
from viaduct.rehearsal.tf1_stage.snapshot import convert_to_numbers


def test_numbers_that_numpy_can_save_keep_their_dtype() -> None:
    for dtype in ("bool", "int8", "uint16", "float16", "float64", "complex64"):
        assert convert_to_numbers(np.ones(2, dtype)).dtype == dtype


@needs_tensorflow
def test_fed_tensors_strings_and_branches_are_not_fetched_and_fed_values_come_in_the_tensors_type() -> None:
    tensors, values = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import sessions, snapshot
        x = tf.placeholder(tf.float32, [2], name="x")
        words = tf.placeholder(tf.string, [1], name="words")
        doubled = tf.add(x, x, name="doubled")
        small = tf.cast(doubled, tf.bfloat16, name="small")
        text = tf.as_string(doubled, name="text")
        branch = tf.cond(doubled[0] > 0, lambda: tf.exp(doubled, name="inside"), lambda: doubled)
        with tf.Session() as session:
            feeds = {x: [1, 2], words: ["a"]}
            run = sessions.describe_run(session, [small, text, branch, words, x], feeds)
            tensors = snapshot.list_tensors(run)
            fetched = session.run(tensors, feeds)
            values = list(snapshot.iterate_values(run, tensors, fetched))
        names = [tensor.op.name for tensor in tensors]
        answer = [names, {value.op.name: [value.array.dtype.name, value.array] for value in values}]
        """,
    )
    assert {"doubled", "small"} <= set(tensors)
    assert not {"x", "words", "text"} & set(tensors)
    assert not [name for name in tensors if "inside" in name]
    assert values["x"] == ["float32", [1, 2]]
    assert values["small"] == ["float32", [2, 4]], "NumPy has no bfloat16"
    assert "words" not in values
