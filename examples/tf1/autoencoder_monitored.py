"""A denoising autoencoder for sensor curves, trained inside tf.train.MonitoredTrainingSession.

    python autoencoder_monitored.py --checkpoint_dir=runs/curves --max_steps=300

The curves are sums of two sines; the network sees them with noise and a gap, and has to give them back whole. The
session saves, restores and counts by itself; hooks do the rest.
"""

from __future__ import absolute_import, division, print_function

import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("checkpoint_dir", "", "Where to save; a temporary directory if empty.")
flags.DEFINE_integer("max_steps", 300, "Global step at which training ends.")
flags.DEFINE_integer("batch_size", 50, "Curves in a step.")
flags.DEFINE_integer("curves", 1000, "How many curves to make.")
flags.DEFINE_integer("points", 64, "Samples in a curve.")
flags.DEFINE_integer("code", 16, "Width of the bottleneck.")
flags.DEFINE_float("learning_rate", 3e-3, "At the beginning; halves every 200 steps.")
flags.DEFINE_float("dropout", 0.1, "Share of hidden units that are dropped.")
flags.DEFINE_bool("log_device_placement", False, "Print where each operation runs.")
flags.DEFINE_bool("xla", False, "Compile clusters of operations.")


# ---- data


def make_curves(count, points, seed):
    """Sums of two sines of random frequency and phase, as [count, points]."""
    random = np.random.RandomState(seed)
    time_axis = np.linspace(0, 1, points)[None, :]
    total = np.zeros((count, points))
    for _ in range(2):
        frequency = random.uniform(1, 4, size=(count, 1))
        phase = random.uniform(0, 2 * np.pi, size=(count, 1))
        total += np.sin(2 * np.pi * frequency * time_axis + phase)
    return (total / 2).astype(np.float32)


def spoil(curve):
    """Noise over all of it and a gap of eight samples somewhere."""
    points = FLAGS.points
    noisy = curve + tf.random.normal([points], stddev=0.1)
    first = tf.random.uniform([], 0, points - 8, dtype=tf.int32)
    place = tf.range(points)
    hidden = tf.logical_and(place >= first, place < first + 8)
    return tf.where(hidden, tf.zeros([points]), noisy), curve


def input_pipeline(curves, training):
    dataset = tf.data.Dataset.from_tensor_slices(curves)
    if training:
        dataset = dataset.shuffle(buffer_size=FLAGS.curves)
        dataset = dataset.repeat()
    dataset = dataset.apply(
        tf.data.experimental.map_and_batch(map_func=spoil, batch_size=FLAGS.batch_size, num_parallel_batches=2)
    )
    dataset = dataset.prefetch(1)
    return dataset.make_one_shot_iterator().get_next() if training else dataset.make_initializable_iterator()


# ---- model


def hidden_layer(inputs, width, name, training):
    """Dense, batch-free normalisation, leaky activation, dropout."""
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable(
            "kernel", [inputs.shape[-1], width], initializer=tf.variance_scaling_initializer(scale=2.0)
        )
        bias = tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
        outputs = tf.nn.leaky_relu(tf.matmul(inputs, kernel) + bias)
    if training:
        outputs = tf.nn.dropout(outputs, rate=FLAGS.dropout)
    return outputs


def autoencoder(spoiled, training):
    spoiled = tf.reshape(spoiled, [-1, FLAGS.points])
    hidden = hidden_layer(spoiled, 64, "encoder_1", training)
    code = hidden_layer(hidden, FLAGS.code, "encoder_2", training=False)
    hidden = hidden_layer(code, 64, "decoder_1", training)
    with tf.variable_scope("decoder_2", reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [64, FLAGS.points], initializer=tf.glorot_uniform_initializer())
        bias = tf.get_variable("bias", [FLAGS.points], initializer=tf.zeros_initializer())
    return tf.matmul(hidden, kernel) + bias


def training_op(loss):
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(FLAGS.learning_rate, global_step, 200, 0.5, staircase=True)
    optimizer = tf.train.RMSPropOptimizer(rate, momentum=0.5)
    gradients = optimizer.compute_gradients(loss)
    clipped = [(tf.clip_by_value(gradient, -1.0, 1.0), variable) for gradient, variable in gradients]
    return optimizer.apply_gradients(clipped, global_step=global_step)


# ---- running


class SpeedHook(tf.train.SessionRunHook):
    """Prints the loss and the speed every so many steps."""

    def __init__(self, loss, every):
        self.loss = loss
        self.every = every
        self.step = 0
        self.started = None

    def before_run(self, run_context):
        self.started = self.started or time.time()
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.step += 1
        if self.step % self.every == 0:
            speed = self.step / (time.time() - self.started)
            print("step %d loss %.4f, %.0f steps/s" % (self.step, run_values.results, speed))


def session_config():
    config = tf.ConfigProto(log_device_placement=FLAGS.log_device_placement)
    config.gpu_options.per_process_gpu_memory_fraction = 0.8
    if FLAGS.xla:
        config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    return config


def train(checkpoint_dir):
    spoiled, whole = input_pipeline(make_curves(FLAGS.curves, FLAGS.points, seed=1), training=True)
    loss = tf.reduce_mean(tf.square(autoencoder(spoiled, training=True) - whole))
    train_op = training_op(loss)
    hooks = [
        tf.train.StopAtStepHook(last_step=FLAGS.max_steps),
        tf.train.NanTensorHook(loss),
        SpeedHook(loss, every=100),
    ]
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir,
        hooks=hooks,
        save_checkpoint_steps=100,
        save_summaries_steps=None,
        save_summaries_secs=None,
        config=session_config(),
    ) as sess:
        while not sess.should_stop():
            sess.run(train_op)


def evaluate(checkpoint_dir):
    """Error of the saved network on new curves, beside the error of doing nothing."""
    with tf.Graph().as_default():
        iterator = input_pipeline(make_curves(200, FLAGS.points, seed=2), training=False)
        spoiled, whole = iterator.get_next()
        error = tf.reduce_mean(tf.square(autoencoder(spoiled, training=False) - whole))
        untouched = tf.reduce_mean(tf.square(spoiled - whole))
        saver = tf.train.Saver()
        with tf.Session() as sess:
            saver.restore(sess, tf.train.latest_checkpoint(checkpoint_dir))
            sess.run(iterator.initializer)
            pairs = []
            while True:
                try:
                    pairs.append(sess.run([error, untouched]))
                except tf.errors.OutOfRangeError:
                    break
    return np.mean(pairs, axis=0)


def main(_):
    checkpoint_dir = FLAGS.checkpoint_dir or tempfile.mkdtemp(prefix="curves_")
    os.makedirs(checkpoint_dir, exist_ok=True)
    with tf.Graph().as_default():
        train(checkpoint_dir)
    error, untouched = evaluate(checkpoint_dir)
    print("final error %.4f, of the spoiled curves %.4f" % (error, untouched))


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run(main)
