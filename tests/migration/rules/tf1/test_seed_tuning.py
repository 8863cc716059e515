from __future__ import annotations

from migration.checking import check_noop

HEAD = "import tensorflow as tf\n"


def test_casts_of_the_preset_are_written_once() -> None:
    source = HEAD + "a = tf.metrics.accuracy(labels=tf.cast(l, tf.float32), predictions=p)\n"
    check_noop("seed_tuning", source, preset="resnet-seed")
