"""Initializers and penalties."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_a_penalty_with_a_scale_of_zero_is_none_and_sums_leave_it_out() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        w = tf.constant([3.0, -4.0])
        none = [layers.l1_regularizer(0.0)(w), layers.l2_regularizer(0.0)(w), layers.sum_regularizer([None])]
        both, one = layers.l1_l2_regularizer(0.5, 2.0)(w), layers.l1_l2_regularizer(0.5, 0.0)(w)
        answer = [none, compute([both, one, layers.l2_regularizer(2.0)(w)])]
        """,
    )
    assert answer == [[None] * 3, [28.5, 3.5, 25.0]]


def test_penalties_of_several_weights_are_added_up_and_each_is_a_loss() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        weights = [tf.constant([1.0, 1.0]), tf.constant([2.0])]
        total = layers.apply_regularization(layers.l2_regularizer(1.0), weights)
        answer = [compute(total), compute(tf.losses.get_regularization_losses())]
        """,
    )
    assert answer == [3.0, [1.0, 2.0]]


def test_initializers_have_the_spread_that_their_names_promise() -> None:
    uniform, normal, wide = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        makers = [layers.xavier_initializer(seed=1), layers.xavier_initializer(False, seed=1),
                  layers.variance_scaling_initializer(seed=1)]
        values = compute([make([300, 100]) for make in makers])
        answer = [[float(v.std()), float(np.abs(v).max())] for v in values]
        """,
    )
    spread = (2 / 400) ** 0.5
    assert uniform == [pytest.approx(spread, rel=0.05), pytest.approx(3**0.5 * spread, rel=0.05)]
    assert normal[0] == pytest.approx(spread, rel=0.05)
    assert normal[1] > uniform[1]
    assert wide[0] == pytest.approx((2 / 300) ** 0.5, rel=0.05)
