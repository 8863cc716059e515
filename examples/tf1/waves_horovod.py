"""Forecast waves with a small convolutional network, one process a card, through Horovod.

    horovodrun -np 4 python waves_horovod.py --data_dir runs/waves
    python waves_horovod.py --single             # on one device, without Horovod

Each process trains on its share of the recordings; gradients are averaged, the first process saves and prints.
"""

from __future__ import print_function

import argparse
import os
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None

HISTORY = 48
FORECAST = 8
TRAIN_WAVES = 1200
EVAL_WAVES = 240


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where recordings are kept; a temporary directory if not given")
    parser.add_argument("--model_dir", default="", help="where the first process saves")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=40, help="of each process")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="of one process; grows with their number")
    parser.add_argument("--warmup_steps", type=int, default=20)
    parser.add_argument("--single", action="store_true", help="train on one device, without Horovod")
    parser.add_argument("--fp16_allreduce", action="store_true", help="halve the traffic")
    return parser.parse_args()


def world():
    """My rank and how many we are."""
    if hvd is None:
        return 0, 1
    return hvd.rank(), hvd.size()


# ---- data


def record_waves(path, count, seed):
    """Write recordings once; the others wait for the file to be there."""
    random = np.random.RandomState(seed)
    moments = np.arange(HISTORY + FORECAST)[None, :]
    period = random.uniform(8, 24, size=(count, 1))
    phase = random.uniform(0, 2 * np.pi, size=(count, 1))
    height = random.uniform(0.5, 1.5, size=(count, 1))
    waves = height * np.sin(2 * np.pi * moments / period + phase) + random.normal(0, 0.02, size=(count, moments.size))
    temporary = "%s.%d.npy" % (path, os.getpid())
    np.save(temporary, waves.astype(np.float32))
    os.replace(temporary, path)


def prepare(data_dir):
    for name, count, seed in (("train", TRAIN_WAVES, 1), ("eval", EVAL_WAVES, 2)):
        path = os.path.join(data_dir, name + ".npy")
        if not os.path.exists(path):
            record_waves(path, count, seed)


def read(data_dir, name):
    waves = np.load(os.path.join(data_dir, name + ".npy"))
    return waves[:, :HISTORY, None], waves[:, HISTORY:]


def train_input(data_dir, batch_size):
    """My share of the recordings, shuffled anew in each pass."""
    rank, size = world()
    dataset = tf.data.Dataset.from_tensor_slices(read(data_dir, "train"))
    if hvd is not None:
        dataset = dataset.shard(hvd.size(), hvd.rank())
    dataset = dataset.shuffle(TRAIN_WAVES // size, seed=rank).repeat()
    dataset = dataset.batch(batch_size)
    return dataset.prefetch(2).make_one_shot_iterator().get_next()


# ---- model


def network(history):
    """Three dilated convolutions, then a dense layer over the last states."""
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        outputs = history
        for number, dilation in enumerate((1, 2, 4)):
            outputs = tf.layers.conv1d(
                outputs,
                filters=16,
                kernel_size=3,
                dilation_rate=dilation,
                padding="same",
                activation=tf.nn.relu,
                name="conv_%d" % number,
            )
        states = tf.reshape(outputs[:, -12:, :], [-1, 12 * 16])
        return tf.layers.dense(states, FORECAST, name="forecast")


def training_op(loss, options):
    global_step = tf.train.get_or_create_global_step()
    _, size = world()
    warm = tf.minimum(1.0, tf.cast(global_step + 1, tf.float32) / options.warmup_steps)
    optimizer = tf.train.AdamOptimizer(options.learning_rate * size * warm)
    if hvd is not None:
        compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
        optimizer = hvd.DistributedOptimizer(optimizer, compression=compression)
    return optimizer.minimize(loss, global_step=global_step)


# ---- running


def make_config():
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    if hvd is not None:
        config.gpu_options.visible_device_list = str(hvd.local_rank())
    return config


def train(options, data_dir, model_dir):
    rank, size = world()
    history, future = train_input(data_dir, options.batch_size)
    loss = tf.reduce_mean(tf.squared_difference(network(history), future))
    train_op = training_op(loss, options)
    last_step = options.epochs * TRAIN_WAVES // (options.batch_size * size)
    hooks = [tf.train.StopAtStepHook(last_step=last_step)]
    if hvd is not None:
        hooks.append(hvd.BroadcastGlobalVariablesHook(0))
    if rank == 0:
        hooks.append(tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=50))
    checkpoint_dir = model_dir if rank == 0 else None
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=make_config()) as sess:
        while not sess.should_stop():
            sess.run(train_op)


def evaluate(options, data_dir, model_dir):
    """Error of the forecast beside that of repeating the last value."""
    with tf.Graph().as_default():
        history, future = read(data_dir, "eval")
        given = tf.placeholder(tf.float32, [None, HISTORY, 1])
        forecast = network(given)
        with tf.Session(config=make_config()) as sess:
            tf.train.Saver().restore(sess, tf.train.latest_checkpoint(model_dir))
            guesses = [
                sess.run(forecast, {given: history[start : start + options.batch_size]})
                for start in range(0, EVAL_WAVES, options.batch_size)
            ]
    error = float(np.mean((np.concatenate(guesses) - future) ** 2))
    lazy = float(np.mean((history[:, -1] - future) ** 2))
    return error, lazy


def main():
    global hvd
    options = parse_arguments()
    if options.single:
        hvd = None
    elif hvd is None:
        sys.exit("waves_horovod.py: Horovod is not installed. Install it, or train on one device with --single.")
    else:
        hvd.init()
    tf.disable_v2_behavior()
    data_dir = options.data_dir or tempfile.mkdtemp(prefix="waves_")
    model_dir = options.model_dir or os.path.join(data_dir, "model")
    os.makedirs(data_dir, exist_ok=True)
    prepare(data_dir)
    with tf.Graph().as_default():
        train(options, data_dir, model_dir)
    if world()[0] == 0:
        print("final error %.4f, of repeating the last value %.4f" % evaluate(options, data_dir, model_dir))


if __name__ == "__main__":
    main()
