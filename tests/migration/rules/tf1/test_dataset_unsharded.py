from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


def test_unsharded_data_is_reported_once() -> None:
    source = (
        HEAD + "def input_fn():\n    ds = tf.data.Dataset.list_files(p)\n"
        "    return ds.interleave(lambda f: tf.data.TFRecordDataset(f))\n"
    )
    result = check_says("dataset_unsharded", source, "manual", "same examples", distributed=True)
    assert len(result.findings) == 1
    check_noop("dataset_unsharded", source.replace("input_fn", "eval_input_fn"), distributed=True)
    check_noop("dataset_unsharded", source.replace("return ds", "return ds.shard(n, i)"), distributed=True)
