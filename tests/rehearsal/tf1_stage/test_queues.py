"""Inputs that threads of TensorFlow 1 fill: a second run with the same seed gets the same batches."""

from __future__ import annotations

from pathlib import Path

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow

NUMPY_INPUT = """
import numpy as np
import tensorflow as tf


def model_fn(features, labels, mode):
    x = tf.layers.dense(features["x"], 1, kernel_initializer=tf.ones_initializer())
    loss = tf.losses.mean_squared_error(labels, x)
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


data = np.arange(60, dtype=np.float32)[:, None] / 60
feed = tf.estimator.inputs.numpy_input_fn({"x": data}, 2 * data, batch_size=4, num_epochs=None, shuffle=True)
tf.estimator.Estimator(model_fn, "model").train(feed, steps=6)
"""
SHUFFLE_BATCH = """
import tensorflow as tf

number = tf.train.range_input_producer(40, shuffle=True).dequeue()
x = tf.train.shuffle_batch([tf.cast(number, tf.float32)], 4, capacity=30, min_after_dequeue=10, num_threads=4)
w = tf.get_variable("w", [], initializer=tf.ones_initializer())
train = tf.train.GradientDescentOptimizer(1e-4).minimize(tf.reduce_mean(tf.square(w * x - 1)))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coordinator)
    for _ in range(6):
        sess.run(train)
    coordinator.request_stop()
    coordinator.join(threads)
"""


def check_repeats(source: str, folder: Path) -> None:
    answers = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        script = folder / name / "train.py"
        script.write_text(source)
        answers.append(rehearse_script("original", script))
    assert not answers[0].failure, answers[0].stderr
    assert len(answers[0].losses) == 6
    assert len(set(answers[0].losses)) > 1
    assert answers[0].losses == answers[1].losses
    assert answers[0].variables == answers[1].variables


def test_numpy_input_fn_gives_the_same_batches_again(tmp_path: Path) -> None:
    check_repeats(NUMPY_INPUT, tmp_path)


def test_shuffle_batch_with_several_threads_gives_the_same_batches_again(tmp_path: Path) -> None:
    check_repeats(SHUFFLE_BATCH, tmp_path)


def test_a_queue_that_shuffles_is_not_one_that_does_not(tmp_path: Path) -> None:
    plain = SHUFFLE_BATCH.replace("40, shuffle=True", "40, shuffle=False")
    in_order = plain.replace(
        "shuffle_batch([tf.cast(number, tf.float32)], 4, capacity=30, min_after_dequeue=10, num_threads=4)",
        "batch([tf.cast(number, tf.float32)], 4, capacity=30)",
    )
    assert in_order != plain
    losses = []
    for name, source in (("shuffled", plain), ("plain", in_order)):
        script = tmp_path / f"{name}.py"
        script.write_text(source)
        losses.append(rehearse_script("original", script).losses)
    assert len(losses[1]) == 6
    assert losses[0] != losses[1]
