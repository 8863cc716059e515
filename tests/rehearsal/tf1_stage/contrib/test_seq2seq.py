"""The loss over sequences, by its two averages."""

from __future__ import annotations

import numpy as np
import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_positions_without_weight_do_not_count_whatever_is_averaged() -> None:
    both, neither, steps, examples = evaluate(
        "original",
        """
        from tensorflow.contrib.seq2seq import sequence_loss
        logits = tf.constant([[[0.0, 0.0], [9.0, -9.0]], [[0.0, 0.0], [0.0, 0.0]]])
        targets, weights = tf.constant([[0, 1], [1, 1]]), tf.constant([[1.0, 0.0], [1.0, 3.0]])
        answer = compute([sequence_loss(logits, targets, weights, *averages)
                          for averages in ((True, True), (False, False), (True, False), (False, True))])
        """,
    )
    entropy = pytest.approx(np.log(2), rel=1e-5)
    assert both == entropy
    assert neither == [[entropy, 0], [entropy, pytest.approx(3 * np.log(2), rel=1e-5)]]
    assert steps == [entropy, entropy]
    assert examples == [entropy, entropy]
