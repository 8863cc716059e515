import tensorflow as tf

class Model(object):
  def __call__(self, inputs, training):
    # 是否进行第一次池化
    if self.first_pool_size:
      inputs = tf.compat.v1.layers.max_pooling2d(
          inputs=inputs, pool_size=self.first_pool_size,
          strides=self.first_pool_stride, padding='SAME',
          data_format=self.data_format)
      inputs = tf.identity(inputs, 'initial_max_pool')
    return inputs
