"""Tables of words."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_unknown_words_get_the_default_or_a_bucket_after_the_known_ones() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import lookup
        path = folder / "words.txt"
        path.write_text("a\\nb\\nc\\n")
        words = tf.constant(["c", "zebra"])
        tables = [
            lookup.index_table_from_tensor(["a", "c"]),
            lookup.index_table_from_tensor(["a", "c"], num_oov_buckets=1),
            lookup.index_table_from_file(str(path), default_value=9),
            lookup.index_table_from_file(str(path), num_oov_buckets=1),
        ]
        start = lookup.HashTable(lookup.KeyValueTensorInitializer(["x"], [1]), -1)
        answer = [compute([table.lookup(words) for table in tables]), start.init is start.initializer]
        """,
    )
    assert answer == [[[1, -1], [1, 2], [2, 9], [2, 3]], True]
