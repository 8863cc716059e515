"""A rehearsal finds where a step's forward pass begins and its backward pass ends."""

from __future__ import annotations

import json
from pathlib import Path

from forked_viaduct import viaduct
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow

SCRIPT = """
import numpy as np
import tensorflow as tf

images, labels = tf.placeholder(tf.float32, [4, 8, 8, 3]), tf.placeholder(tf.int64, [4])
wanted = tf.one_hot(tf.cast(labels, tf.int32), 2, name="labels_first")
smooth = tf.constant(0.5, name="no_batch") * tf.get_variable("factor", [2], initializer=tf.ones_initializer())
pixels = tf.reshape(images / 255.0, [4, 8, 8, 3], name="preparing")
hidden = tf.layers.conv2d(pixels, 4, 3, name="stem")
hidden = tf.layers.flatten(tf.layers.conv2d(tf.nn.relu(hidden), 4, 3, name="body"))
logits = tf.layers.dense(hidden, 2, name="head") * smooth
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=wanted, logits=logits))
train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(3):
        sess.run(train, {images: np.ones([4, 8, 8, 3]), labels: np.zeros([4])})
"""


def test_the_first_layer_and_its_gradient_are_the_points(tmp_path: Path) -> None:
    """Neither the labels, nor the pixels' preparation, nor what needs a variable and no batch."""
    (tmp_path / "train.py").write_text(SCRIPT)
    record = tmp_path / "rec"
    answer = viaduct("rehearse", tmp_path / "train.py", "--on", "original", "--steps", "2", "--record", record)
    assert answer.returncode == 0, answer.stderr
    points = json.loads((record / "profiling_points.json").read_text())
    assert points["fp_point"] == "stem/Conv2D"
    assert points["bp_point"] == "gradients/stem/Conv2D_grad/Conv2DBackpropFilter"
    assert f"--profile-points {record}" in answer.stderr
    migrated = viaduct("migrate", tmp_path / "train.py", "--profile", "/tmp/p", "--profile-points", record)
    assert '"fp_point": "stem/Conv2D"' in migrated.stdout


def test_a_script_that_does_not_train_has_no_points(tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text(SCRIPT.replace("sess.run(train,", "sess.run(loss,"))
    record = tmp_path / "rec"
    viaduct("rehearse", tmp_path / "predict.py", "--on", "original", "--steps", "0", "--record", record)
    assert (record / "summary.json").exists()
    assert not (record / "profiling_points.json").exists()
