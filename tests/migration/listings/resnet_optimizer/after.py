import tensorflow as tf
from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer  #分布式訓練配置

def resnet_model_fn(loss, learning_rate, momentum, global_step):
  optimizer = tf.compat.v1.train.MomentumOptimizer(
      learning_rate=learning_rate,
      momentum=momentum
  )

  # 使用分布式训练优化器封装单机优化器，用于支持分布式训练，在原代码中添加如下代码
  optimizer = NPUDistributedOptimizer(optimizer)

  grad_vars = optimizer.compute_gradients(loss)
  minimize_op = optimizer.apply_gradients(grad_vars, global_step)
  return minimize_op
