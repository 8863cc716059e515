from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import tensorflow as tf\n"


def migrate_body(source: str, rule: str, **options: object) -> str:
    return migrate_source(HEAD + source, rule, **options).after.decode().partition(HEAD)[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.nn.dropout(x, 0.5)", "npu_ops.dropout(x, 0.5)"),
        ("tf.nn.dropout(x, keep_prob=k, seed=1)", "npu_ops.dropout(x, keep_prob=k, seed=1)"),
        ("tf.nn.dropout(x, rate=0.1)", "npu_ops.dropout(x, keep_prob=1.0 - 0.1)"),
        ("tf.nn.dropout(x, rate=r - 0.1)", "npu_ops.dropout(x, keep_prob=1.0 - (r - 0.1))"),
        ("tf.nn.dropout(x, rate=(r - 0.1))", "npu_ops.dropout(x, keep_prob=1.0 - (r - 0.1))"),
        ("tf.nn.dropout(x, rate=a if t else b)", "npu_ops.dropout(x, keep_prob=1.0 - (a if t else b))"),
        ("tf.nn.dropout(rate=f(1), x=x, name='d',)", "npu_ops.dropout(keep_prob=1.0 - f(1), x=x, name='d',)"),
        ("tf.nn.dropout(x, keep_prob=None, rate=0.1)", "npu_ops.dropout(x, keep_prob=1.0 - 0.1)"),
        ("tf.nn.dropout(x, rate=1 - keep)", "npu_ops.dropout(x, keep_prob=1.0 - (1 - keep))"),
        (
            "tf.nn.dropout(\n    x,  # the input\n    rate=0.1,  # dropped\n)",
            "npu_ops.dropout(\n    x,  # the input\n    keep_prob=1.0 - 0.1,  # dropped\n)",
        ),
    ],
)
def test_dropout_is_replaced_with_the_same_keep_prob(before: str, after: str) -> None:
    text = migrate_body(f"y = {before}\n", "dropout")
    assert text == f"from npu_bridge.estimator import npu_ops\ny = {after}\n"


@pytest.mark.parametrize("call", ["Dropout(0.1)", "self.dropout(x)", "tf.layers.dropout(x)", "nn.dropout(x)"])
def test_other_dropouts_are_left_alone(call: str) -> None:
    check_noop("dropout", HEAD + f"y = {call}\n")


def test_a_noise_shape_gets_advice_and_a_keep_prob_of_zero_needs_review() -> None:
    check_says("dropout", HEAD + "y = tf.nn.dropout(x, 0.5, [1, 2])\n", "advice", "noise_shape")
    check_says("dropout", HEAD + "y = tf.nn.dropout(x, rate=1.0)\n", "manual", "(0, 1]")
    second = "import tensorflow.compat.v2 as tf2\ny = tf2.nn.dropout(x, 0.1)\n"
    check_says("dropout", second, "advice", "second argument")


@pytest.mark.parametrize(
    "call", ["tf.nn.dropout(x, None, None, rate=0.1)", "tf.nn.dropout(x, None, None, 1, None, 0.1)"]
)
def test_a_rate_beside_positional_arguments_needs_manual_review(call: str) -> None:
    check_says("dropout", HEAD + f"y = {call}\n", "manual", "name the arguments")


def test_a_name_in_use_gets_a_prefix() -> None:
    text = migrate_body("npu_ops = 3\ny = tf.nn.dropout(x, 0.5)\n", "dropout")
    assert "import npu_ops as npu_npu_ops" in text
    assert "y = npu_npu_ops.dropout(x, 0.5)" in text
