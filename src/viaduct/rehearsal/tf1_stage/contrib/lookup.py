"""tf.contrib.lookup: the tables of tf.lookup under their former names; HashTable has `init` beside `initializer`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

KeyValueTensorInitializer = tf.lookup.KeyValueTensorInitializer
TextFileInitializer = tf.lookup.TextFileInitializer
TextFileIndex = tf.lookup.TextFileIndex
IdTableWithHashBuckets = tf.lookup.StaticVocabularyTable


class HashTable(tf.lookup.StaticHashTable):  # type: ignore[misc]
    @property
    def init(self) -> Any:
        return self.initializer


def index_table_from_tensor(
    mapping: Any, num_oov_buckets: int = 0, default_value: int = -1, dtype: Any = tf.string, name: str | None = None
) -> Any:
    keys = tf.convert_to_tensor(mapping, dtype=dtype)
    values = tf.range(tf.size(keys, out_type=tf.int64), dtype=tf.int64)
    return make_table(KeyValueTensorInitializer(keys, values), num_oov_buckets, default_value, name)


def index_table_from_file(
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    name: str | None = None,
) -> Any:
    """Return a table from the lines of a file to their numbers, counted from 0."""
    line_numbers = TextFileInitializer(
        vocabulary_file, tf.string, TextFileIndex.WHOLE_LINE, tf.int64, TextFileIndex.LINE_NUMBER, vocab_size=vocab_size
    )
    return make_table(line_numbers, num_oov_buckets, default_value, name)


def make_table(initializer: Any, num_oov_buckets: int, default_value: int, name: str | None) -> Any:
    """Return a table; an unknown key has a bucket after the known keys, or without buckets the default value."""
    if num_oov_buckets:
        return tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets, name=name)
    return HashTable(initializer, default_value, name=name)
