"""NPUSaver, here TensorFlow's Saver: all variables are on the host."""

import tensorflow.compat.v1 as tf


class NPUSaver(tf.train.Saver):  # type: ignore[misc]
    pass
