"""Losses and gradients that are recorded while a graph is built."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def record_gradients(source: str) -> list[list[object]]:
    """Return (loss, variables, applied) of each record of a snippet's graph."""
    before = """
from viaduct.rehearsal.tf1_stage import gradients
w, v = (tf.get_variable(name, [], initializer=tf.ones_initializer()) for name in "wv")
frozen = tf.get_variable("frozen", [], trainable=False)
loss = tf.multiply(w * v, frozen, name="loss")
"""
    after = """
records = gradients.find_recorded_gradients(tf.get_default_graph())
answer = [[r.loss if r.loss is None else r.loss.op.name, [name for name, _ in r.pairs], r.is_applied] for r in records]
"""
    answer: list[list[object]] = evaluate("original", before + source + after)
    return answer


def test_gradients_of_anything_but_trainable_variables_are_not_recorded() -> None:
    assert record_gradients("tf.gradients(loss, [frozen]); tf.gradients(loss, tf.constant(1.0))") == []
    assert record_gradients("tf.gradients(loss, [frozen, v])") == [["loss", ["v"], False]]


def test_an_optimizer_records_its_loss_and_what_it_applies() -> None:
    computed, applied = record_gradients("tf.train.AdamOptimizer().minimize(loss)")
    assert computed == ["loss", ["w", "v"], False]
    assert applied == [None, ["w", "v"], True]


def test_of_nested_optimizers_the_outermost_counts() -> None:
    scaled = (
        "from viaduct.rehearsal.tf1_stage import loss_scale\n"
        "inner = tf.train.GradientDescentOptimizer(0.1)\n"
        "loss_scale.LossScaleOptimizer(inner, loss_scale.FixedLossScaleManager(8.0)).minimize(loss)\n"
    )
    assert record_gradients(scaled) == [["loss", ["w", "v"], False], [None, ["w", "v"], True]]


def test_an_optimizer_class_that_the_script_defines_is_recorded_too() -> None:
    own = (
        "class Own(tf.train.GradientDescentOptimizer):\n"
        "    def compute_gradients(self, loss, **rest):\n"
        "        return super().compute_gradients(2 * loss, **rest)\n"
        "Own(0.1).minimize(loss, var_list=[w])\n"
    )
    assert record_gradients(own) == [["loss", ["w"], False], [None, ["w"], True]]
