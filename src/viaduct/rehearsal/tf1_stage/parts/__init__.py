"""Parts of TensorFlow 1.15 that went with TensorFlow 2 and were no part of tf.contrib; found as `tensorflow.NAME`."""
