"""Mixed precision and loss scale."""

from __future__ import annotations

from migration.checking import migrated

HEAD = "import tensorflow as tf\n"


def test_the_optimizer_is_told_of_a_distributed_run() -> None:
    source = HEAD + "o = tf.contrib.mixed_precision.LossScaleOptimizer(opt, tf.train.experimental.FixedLossScale(8))\n"
    text = migrated(source, distributed=True).after.decode()
    assert "NPULossScaleOptimizer(opt, FixedLossScaleManager(8), is_distributed=True)" in text
