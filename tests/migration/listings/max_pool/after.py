import tensorflow as tf

class Model(object):
  def __call__(self, inputs, training):
    # 是否进行第一次池化
    if self.first_pool_size:
      # 使用 max_pool_with_argmax 代替 max_pooling2d 能获得更好的表现
      inputs, argmax = tf.compat.v1.nn.max_pool_with_argmax(
          input=inputs, ksize=(1, self.first_pool_size, self.first_pool_size, 1),
          strides=(1, self.first_pool_stride, self.first_pool_stride, 1), padding='SAME',
          data_format='NCHW' if self.data_format == 'channels_first' else 'NHWC')
      inputs = tf.identity(inputs, 'initial_max_pool')
    return inputs
