"""Fingerprints of evaluations, and the perturbation of weights, wherever they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow


def test_a_fingerprint_shows_another_order_of_predictions() -> None:
    from viaduct.rehearsal.tf1_stage.inspection import compute_fingerprint

    first, second = np.array([1, 2, 3], np.float32), np.array([3, 2, 1], np.float32)
    assert compute_fingerprint({"p": first, "name": b"a"}) != compute_fingerprint({"p": second, "name": b"a"})
    assert compute_fingerprint([np.float32(2.5), 4]) == [2.5, 2.5, 4.0, 4.0]


SHAKEN = """
import sys
import tensorflow as tf
from viaduct.rehearsal.tf1_stage import inspection, sessions

with tf.Graph().as_default(), tf.Session() as first:
    tf.get_variable("w", [4], initializer=tf.ones_initializer())
    first.run(tf.global_variables_initializer())
    tf.train.Saver().save(first, "saved/model")
w = tf.get_variable("w", [4], use_resource=sys.argv[1] == "resource")
tf.train.init_from_checkpoint("saved/model", {"w": "w"})
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w))
sessions.observers.insert(0, inspection.Perturbation())
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(train)
"""


@pytest.mark.parametrize("kind", ["plain", "resource"])
def test_weights_that_a_checkpoint_gave_are_moved_too(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "shaken.py"
    script.write_text(SHAKEN)
    answer = rehearse_script("original", script, arguments=[kind])
    assert answer.code == 0, answer.stderr[-3000:]
    assert answer.variables["w"] == pytest.approx([0.9] * 4)
    assert answer.variables["w"] != [np.float32(1) - np.float32(0.1)] * 4
