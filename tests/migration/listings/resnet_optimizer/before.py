import tensorflow as tf

def resnet_model_fn(loss, learning_rate, momentum, global_step):
  optimizer = tf.compat.v1.train.MomentumOptimizer(
      learning_rate=learning_rate,
      momentum=momentum
  )

  grad_vars = optimizer.compute_gradients(loss)
  minimize_op = optimizer.apply_gradients(grad_vars, global_step)
  return minimize_op
