"""The unrolled decoder and the losses of lists of steps."""

from __future__ import annotations

import numpy as np
import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_lists_of_different_lengths_are_refused_and_steps_without_weight_do_not_count() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import legacy_seq2seq as legacy
        steps = [tf.zeros([2, 4])] * 2, [tf.constant([0, 1])] * 2
        weights = [tf.constant([1.0, 1.0]), tf.constant([1.0, 0.0])]
        total = legacy.sequence_loss_by_example(*steps, weights, average_across_timesteps=False)
        losses = [total, legacy.sequence_loss_by_example(*steps, weights), legacy.sequence_loss(*steps, weights)]
        answer = [refusal(lambda: legacy.sequence_loss(*steps, weights[:1])), compute(losses)]
        """,
    )
    assert "must be the same" in answer[0]
    entropy = np.log(4)
    assert answer[1][0] == [pytest.approx(2 * entropy), pytest.approx(entropy)]
    assert answer[1][1:] == [[pytest.approx(entropy)] * 2, pytest.approx(entropy)]


def test_with_a_loop_function_each_output_makes_the_next_input() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import legacy_seq2seq as legacy
        add = lambda step_input, state: (step_input + state, state)
        inputs = [tf.constant(value) for value in (1.0, 100.0, 100.0)]
        looped = legacy.rnn_decoder(inputs, tf.constant(1.0), add, lambda previous, number: 10 * previous)[0]
        answer = compute([looped, legacy.rnn_decoder(inputs, tf.constant(1.0), add)[0]])
        """,
    )
    assert answer == [[2, 21, 211], [2, 101, 101]]
