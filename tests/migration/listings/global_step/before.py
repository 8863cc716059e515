import tensorflow as tf

def learning_rate_fn(global_step):
  """Builds scaled learning rate function with 5 epoch warm up."""
  lr = tf.compat.v1.train.piecewise_constant(global_step, boundaries, vals)
  return lr
