"""Mixed precision and loss scale."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HEAD = "import tensorflow as tf\n"
REWRITE = "tf.train.experimental.enable_mixed_precision_graph_rewrite"


def test_the_rewrite_disappears_where_it_only_wraps_the_optimizer() -> None:
    check_rewrite(
        "precision_graph_rewrite",
        HEAD + f"if fp16:\n    opt = {REWRITE}(\n        opt, loss_scale=scale)\nrun(opt)\n",
        HEAD + "if fp16:\n    pass\nrun(opt)\n",
    )


def test_elsewhere_the_optimizer_itself_stays() -> None:
    source = HEAD + f"step = {REWRITE}(opt).minimize(loss)\nother = {REWRITE}(make(1))\n"
    text = migrated(source, "precision_graph_rewrite").after.decode()
    assert text == HEAD + "step = opt.minimize(loss)\nother = make(1)\n"


def test_a_loss_scale_that_went_with_it_is_left_to_a_person() -> None:
    result = migrated(HEAD + f"opt = {REWRITE}(opt, loss_scale='dynamic')\nx = 1\n", "precision_graph_rewrite")
    assert any(finding.status == "manual" and "'dynamic'" in finding.message for finding in result.findings)


def test_the_loss_scale_that_it_has_by_default_is_left_to_a_person_too() -> None:
    result = migrated(HEAD + f"opt = {REWRITE}(opt)\nx = 1\n", "precision_graph_rewrite")
    assert any(finding.status == "manual" and "(dynamic)" in finding.message for finding in result.findings)


def test_the_environment_variable_goes_too() -> None:
    check_rewrite(
        "precision_graph_rewrite",
        "import os\nos.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '1'\nx = 1\n",
        "import os\nx = 1\n",
    )
    check_noop("precision_graph_rewrite", "print('TF_ENABLE_AUTO_MIXED_PRECISION')\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FixedLossScale(128)", "FixedLossScaleManager(128)"),
        ("FixedLossScale(loss_scale_value=128)", "FixedLossScaleManager(loss_scale=128)"),
        (
            "DynamicLossScale()",
            "ExponentialUpdateLossScaleManager(init_loss_scale=2**15, incr_every_n_steps=2000)",
        ),
        (
            "DynamicLossScale(2**10, 50, multiplier=4.)",
            "ExponentialUpdateLossScaleManager(init_loss_scale=2**10, incr_every_n_steps=50, incr_ratio=4.)",
        ),
    ],
)
def test_managers_are_renamed_with_their_arguments(before: str, after: str) -> None:
    text = migrated(HEAD + f"s = tf.train.experimental.{before}\n", "loss_scale_managers").after.decode()
    assert text.endswith(f"s = {after}\n"), text


def test_the_optimizer_is_told_of_a_distributed_run() -> None:
    source = HEAD + "o = tf.contrib.mixed_precision.LossScaleOptimizer(opt, tf.train.experimental.FixedLossScale(8))\n"
    text = migrated(source, distributed=True).after.decode()
    assert "NPULossScaleOptimizer(opt, FixedLossScaleManager(8), is_distributed=True)" in text


def test_a_scale_that_is_no_manager_is_left_to_a_person() -> None:
    source = HEAD + "o = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, loss_scale=8)\n"
    result = migrated(source, "loss_scale_optimizer")
    assert "NPULossScaleOptimizer(opt, loss_scale_manager=8)" in result.after.decode()
    assert any(finding.status == "manual" for finding in result.findings)


def test_scaling_by_hand_is_mentioned_and_stays() -> None:
    check_says("loss_scale_by_hand", HEAD + "opt.compute_gradients(loss * loss_scale)\n", "advice", "by hand")
    check_noop("loss_scale_by_hand", HEAD + "opt.compute_gradients(loss * 2)\n")
