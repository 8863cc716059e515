"""A small network in the structure of Horovod's own MNIST script: one process a card, a monitored session."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

LAST_STEP = 24


def conv_model(image, target, mode):
    target = tf.one_hot(tf.cast(target, tf.int32), 10, 1, 0)
    image = tf.reshape(image, [-1, 14, 14, 1])
    with tf.variable_scope("conv_layer1"):
        conv = tf.layers.conv2d(image, 8, kernel_size=[3, 3], activation=tf.nn.relu, padding="SAME")
        pool = tf.nn.max_pool(conv, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        flat = tf.reshape(pool, [-1, 7 * 7 * 8])
    hidden = tf.layers.dense(flat, 32, activation=tf.nn.relu)
    hidden = tf.layers.dropout(hidden, rate=0.5, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(hidden, 10, activation=None)
    return tf.argmax(logits, 1), tf.losses.softmax_cross_entropy(target, logits)


def read_digits(rank):
    rng = np.random.RandomState(rank)
    return rng.rand(200, 196).astype(np.float32), rng.randint(0, 10, 200)


def make_batches(images, labels, batch_size):
    while True:
        order = np.random.permutation(len(images))
        for start in range(0, len(images), batch_size):
            part = order[start : start + batch_size]
            yield images[part], labels[part]


def main(_):
    hvd.init()
    images, labels = read_digits(hvd.rank())
    with tf.name_scope("input"):
        image = tf.placeholder(tf.float32, [20, 196], name="image")
        label = tf.placeholder(tf.float32, [20], name="label")
    _, loss = conv_model(image, label, tf.estimator.ModeKeys.TRAIN)
    opt = tf.train.RMSPropOptimizer(0.001 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=LAST_STEP // hvd.size()),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=10),
    ]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = os.path.join("checkpoints", "digits") if hvd.rank() == 0 else None
    batches = make_batches(images, labels, 20)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=config) as mon_sess:
        while not mon_sess.should_stop():
            image_, label_ = next(batches)
            mon_sess.run(train_op, feed_dict={image: image_, label: label_})


if __name__ == "__main__":
    tf.app.run()
