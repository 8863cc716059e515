import tensorflow as tf

def learning_rate_fn(global_step):
  """Builds scaled learning rate function with 5 epoch warm up."""
  # 转换数据类型，将global_step的数据类型转换成int32类型以获得更好的计算性能。
  global_step = tf.cast(global_step, tf.int32)

  lr = tf.compat.v1.train.piecewise_constant(global_step, boundaries, vals)
  return lr
