"""Packages of TensorFlow 1.15 outside of tf.contrib that TensorFlow 2 removed; imported as `tensorflow.NAME`."""
