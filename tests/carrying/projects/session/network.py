import tensorflow.compat.v1 as tf


def build(x, training):
    start = tf.truncated_normal_initializer(stddev=0.3, seed=4)
    with tf.variable_scope("net"):
        x = tf.layers.dense(x, 8, kernel_initializer=start, name="first")
        x = tf.layers.batch_normalization(x, momentum=0.9, epsilon=1e-3, training=training, name="norm")
        x = tf.nn.relu(x) + 0.1 * x
        return tf.layers.dense(x, 2, kernel_initializer=start, name="last")


def loss(logits, labels, decay):
    entropy = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    kernels = [v for v in tf.trainable_variables() if "kernel" in v.name]
    return entropy + decay * tf.add_n([tf.nn.l2_loss(v) for v in kernels])
