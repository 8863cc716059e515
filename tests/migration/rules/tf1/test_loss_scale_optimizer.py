from __future__ import annotations

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\n"


def test_a_scale_that_is_no_manager_needs_manual_review() -> None:
    source = HEAD + "o = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, loss_scale=8)\n"
    result = migrate_source(source, "loss_scale_optimizer")
    assert "NPULossScaleOptimizer(opt, loss_scale_manager=8)" in result.after.decode()
    assert any(finding.status == "manual" for finding in result.findings)


def test_with_distributed_the_optimizer_gets_is_distributed() -> None:
    source = HEAD + "o = tf.contrib.mixed_precision.LossScaleOptimizer(opt, tf.train.experimental.FixedLossScale(8))\n"
    text = migrate_source(source, distributed=True).after.decode()
    assert "NPULossScaleOptimizer(opt, FixedLossScaleManager(8), is_distributed=True)" in text


def test_a_loss_scale_among_unpacked_arguments_needs_manual_review() -> None:
    source = "import tensorflow as tf\nopt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, **kw)\n"
    findings = migrate_source(source, "loss_scale_optimizer").findings
    assert any(finding.status == "manual" and "unpacked" in finding.message for finding in findings)
