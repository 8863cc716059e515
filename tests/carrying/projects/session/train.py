"""A session of TensorFlow 1: placeholders, batch norm, a decaying rate, accuracy after each epoch."""

import numpy as np
import tensorflow.compat.v1 as tf

import network


def make_data(count, seed):
    random = np.random.RandomState(seed)
    x = random.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0.2).astype(np.int32)


def batches(x, y, size, order):
    for begin in range(0, len(x) - size + 1, size):
        chosen = order[begin : begin + size]
        yield x[chosen], y[chosen]


def main(_):
    x, y = make_data(40, 1)
    test_x, test_y = make_data(16, 2)
    images = tf.placeholder(tf.float32, [None, 6])
    labels = tf.placeholder(tf.int32, [None])
    training = tf.placeholder_with_default(False, [])
    logits = network.build(images, training)
    loss = network.loss(logits, labels, 1e-3)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 4, 0.7, staircase=True)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = optimizer.minimize(loss, global_step=step)
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    random = np.random.RandomState(3)
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for epoch in range(2):
            order = random.permutation(len(x))
            for batch_x, batch_y in batches(x, y, 8, order):
                feed = {images: batch_x, labels: batch_y, training: True}
                _, value = sess.run([train, loss], feed_dict=feed)
                print("loss", value)
            print("epoch", epoch, "accuracy", sess.run(right, feed_dict={images: test_x, labels: test_y}))
        print("norm of the weights", sess.run(tf.global_norm(tf.trainable_variables())))


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.set_random_seed(5)
    tf.app.run(main)
