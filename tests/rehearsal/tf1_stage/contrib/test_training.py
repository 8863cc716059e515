"""Hyperparameters, and a training loop until a hook stops it."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_unknown_and_doubled_hyperparameters_are_refused_and_values_keep_their_type() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib.training import HParams
        h = HParams(rate=1, wide=True, sizes=[1.5], name="a")
        refusals = [refusal(lambda: h.parse("depth=3")), refusal(lambda: h.add_hparam("rate", 2)),
                    refusal(lambda: h.set_hparam("depth", 1)), refusal(lambda: h.parse("rate=fast"))]
        h.parse("rate=3, wide=False,sizes=[2,3],name=b")
        values = h.values()
        answer = [refusals, values, h.parse_json('{"rate": 5}').rate, "depth" in h, h.get("depth", 7), h.get("rate")]
        """,
    )
    assert [text.partition(":")[0] for text in answer[0]] == ["KeyError", "ValueError", "KeyError", "ValueError"]
    assert answer[1] == {"rate": 3, "wide": False, "sizes": [2.0, 3.0], "name": "b"}
    assert answer[2:] == [5, False, 7, 5]


def test_the_loop_ends_with_its_hook_and_returns_the_last_value() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import training
        step = tf.train.get_or_create_global_step()
        hooks = [tf.train.StopAtStepHook(last_step=4)]
        answer = training.train(tf.assign_add(step, 1), None, hooks=hooks, save_summaries_steps=None)
        """,
    )
    assert answer == 4
