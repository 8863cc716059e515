from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

HEAD = "import tensorflow as tf\n"
SPEC = "tf.contrib.tpu.TPUEstimatorSpec"


def test_eval_metrics_of_unknown_origin_need_manual_review() -> None:
    source = HEAD + "s = tf.contrib.tpu.TPUEstimatorSpec(mode, loss=l, eval_metrics=metrics)\n"
    check_says("tpu_spec", source, "manual", "of unknown origin")
    pair = HEAD + "s = tf.contrib.tpu.TPUEstimatorSpec(mode, eval_metrics=(f, {'a': a}), scaffold_fn=make)\n"
    text = migrate_source(pair, "tpu_spec").after.decode()
    assert "NPUEstimatorSpec(mode, eval_metric_ops=f(**{'a': a}), scaffold=make() if make else None)" in text


@pytest.mark.parametrize(
    ("before", "metrics"),
    [
        ("m = (fn, [a, b])\n", "m[0](*m[1])"),
        ("m = (fn, {'a': a})\n", "m[0](**m[1])"),
        ("m = None\nif x:\n    m = (fn, [a, b])\n", "m[0](*m[1]) if m else None"),
        ("m = None\n", "None"),
    ],
)
def test_a_pair_of_metrics_with_a_name_is_called_by_its_parts(before: str, metrics: str) -> None:
    text = migrate_source(
        f"{HEAD}{before}s = {SPEC}(mode=mode, loss=loss, eval_metrics=m)\n", "tpu_spec"
    ).after.decode()
    assert text.endswith(f"{before}s = NPUEstimatorSpec(mode=mode, loss=loss, eval_metric_ops={metrics})\n")


def test_if_one_spec_of_a_function_cannot_be_converted_none_is() -> None:
    source = (
        f"{HEAD}def f(mode, m):\n    if mode:\n        return {SPEC}(mode=mode, loss=loss)\n"
        f"    return {SPEC}(mode=mode, loss=loss, eval_metrics=m)\n"
    )
    result = check_says("tpu_spec", source, "manual", "of unknown origin")
    assert [finding.line for finding in result.findings] == [4, 5]


def test_positional_eval_metrics_need_manual_review() -> None:
    check_says("tpu_spec", f"{HEAD}s = {SPEC}(mode, None, loss, op, (fn, [a]))\n", "manual", "of unknown origin")


def test_dropped_arguments_of_a_cross_shard_optimizer_are_listed() -> None:
    source = HEAD + "opt = tf.contrib.tpu.CrossShardOptimizer(opt, reduction=tf.losses.Reduction.SUM)\n"
    (finding,) = migrate_source(source, "tpu_spec").findings
    assert finding.message.endswith("dropped: reduction=tf.losses.Reduction.SUM")


def test_a_cross_shard_optimizer_of_unpacked_arguments_needs_manual_review() -> None:
    source = "import tensorflow as tf\nopt = tf.contrib.tpu.CrossShardOptimizer(**kw)\n"
    check_says("tpu_spec", source, "manual", "use the optimizer itself")
