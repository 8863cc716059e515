"""The network itself: nothing in it concerns the device."""

import tensorflow as tf


class Model(object):
  """A stem, residual blocks in four stages, a classifier."""

  def __init__(self, resnet_size, num_classes=1001, dtype=tf.float32):
    self.blocks = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3]}[resnet_size]
    self.num_classes = num_classes
    self.dtype = dtype

  def _block(self, inputs, filters, strides, training):
    shortcut = inputs
    if strides > 1 or shortcut.shape[-1] != filters:
      shortcut = tf.compat.v1.layers.conv2d(shortcut, filters, 1, strides, 'same', use_bias=False)
    for number in range(2):
      inputs = tf.compat.v1.layers.batch_normalization(inputs, training=training, fused=True)
      inputs = tf.nn.relu(inputs)
      inputs = tf.compat.v1.layers.conv2d(inputs, filters, 3, strides if number == 0 else 1, 'same', use_bias=False)
    return inputs + shortcut

  def __call__(self, inputs, training):
    inputs = tf.compat.v1.layers.conv2d(tf.cast(inputs, self.dtype), 64, 7, 2, 'same', use_bias=False)
    inputs = tf.compat.v1.layers.max_pooling2d(inputs, 3, 2, 'same')
    for stage, count in enumerate(self.blocks):
      for number in range(count):
        inputs = self._block(inputs, 64 * 2 ** stage, 2 if stage and not number else 1, training)
    inputs = tf.reduce_mean(inputs, axis=[1, 2])
    return tf.compat.v1.layers.dense(inputs, self.num_classes)
