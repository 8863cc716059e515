"""Averages over ranks, and equal weights at the start."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate, evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_with_one_rank_gradients_and_hooks_add_nothing_to_the_graph() -> None:
    answer = evaluate(
        "npu",
        """
        from viaduct.rehearsal.tf1_stage import data_parallel
        gradients = [tf.ones([2]), None]
        count = len(tf.get_default_graph().get_operations())
        same = data_parallel.average_gradients(gradients)
        hook = data_parallel.BroadcastHook(0)
        hook.begin()
        answer = [same is gradients, hook.bcast_op, len(tf.get_default_graph().get_operations()) - count]
        """,
    )
    assert answer == [True, None, 0]


def test_gradients_are_means_none_stays_none_and_rows_of_all_ranks_are_kept() -> None:
    answers = evaluate_ranks(
        "npu",
        """
        import os
        from viaduct.rehearsal.tf1_stage import data_parallel
        rank = int(os.environ["RANK_ID"])
        rows = tf.IndexedSlices(tf.constant([[2.0 + 4 * rank]]), tf.constant([rank + 1]), tf.constant([3, 1]))
        dense = tf.constant([1.0, 3.0]) * (rank + 1)
        first, none, sparse, second = data_parallel.average_gradients([dense, None, rows, dense + 1])
        answer = [none, *compute([first, second, sparse.values, sparse.indices])]
        """,
    )
    assert answers == [[None, [1.5, 4.5], [2.5, 5.5], [[1], [3]], [1, 2]]] * 2


def test_variables_begin_with_the_roots_values_on_every_rank() -> None:
    answers = evaluate_ranks(
        "npu",
        """
        import os
        from npu_bridge.npu_init import npu_config_proto
        from viaduct.rehearsal.tf1_stage import data_parallel
        rank = float(os.environ["RANK_ID"])
        w = tf.get_variable("w", [], initializer=tf.constant_initializer(rank))
        class Hook(data_parallel.BroadcastHook):
            op_name = "Test"
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(), hooks=[Hook(1)]) as session:
            answer = session.run(w)
        """,
    )
    assert answers == [1, 1]


def test_methods_that_a_wrapping_optimizer_does_not_override_are_the_inner_ones() -> None:
    answer = evaluate(
        "npu",
        """
        from viaduct.rehearsal.tf1_stage.data_parallel import WrappingOptimizer
        w = tf.get_variable("w", [], initializer=tf.ones_initializer())
        inner = tf.train.MomentumOptimizer(0.5, 0.9)
        outer = WrappingOptimizer(inner, "outer")
        step = outer.minimize(3 * w)
        slot = outer.get_slot(w, "momentum")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            answer = [slot is inner.get_slot(w, "momentum"), outer.get_slot_names(), *session.run([w, slot])]
        """,
    )
    assert answer == [True, ["momentum"], pytest.approx(-0.5), pytest.approx(3)]
