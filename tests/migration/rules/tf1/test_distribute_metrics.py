from __future__ import annotations

from migration.checking import check_noop, check_says, migrate_text

HEAD = "import tensorflow as tf\n"


def test_metrics_in_another_form_are_averaged_in_a_comprehension() -> None:
    source = HEAD + "s = tf.estimator.EstimatorSpec(m, eval_metric_ops=metric_fn(*t))\n"
    text = migrate_text(source, "distribute_metrics", metrics_allreduce=True)
    assert "for key, (value, update) in metric_fn(*t).items()}" in text
    source = HEAD + "def f(metrics):\n    return tf.estimator.EstimatorSpec(m, eval_metric_ops=metrics)\n"
    check_says("distribute_metrics", source, "manual", "average metrics", metrics_allreduce=True)
    check_noop("distribute_metrics", HEAD + "s = tf.estimator.EstimatorSpec(m, l)\n", metrics_allreduce=True)


def test_metrics_are_averaged_only_when_requested() -> None:
    source = (
        HEAD
        + "def f():\n    a = tf.metrics.mean(x)\n    return tf.estimator.EstimatorSpec(m, eval_metric_ops={'a': a})\n"
    )
    assert "allreduce" not in migrate_text(source, distributed=True)
    text = migrate_text(source, distributed=True, metrics_allreduce=True)
    assert '{\'a\': (hccl_ops.allreduce(a[0], "sum") / int(os.getenv("RANK_SIZE", "1")), a[1])}' in text
