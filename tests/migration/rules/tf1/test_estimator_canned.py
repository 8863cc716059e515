from __future__ import annotations

from migration.checking import migrated

HEAD = "import tensorflow as tf\n"


def test_a_positional_config_of_a_ready_made_estimator_is_replaced_in_place() -> None:
    source = HEAD + "m = tf.estimator.LinearEstimator(head, columns, None, opt, old)\n"
    text = migrated(source, "estimator_canned").after.decode()
    assert "LinearEstimator(head, columns, None, opt, npu_run_config_init(run_config=old))" in text
