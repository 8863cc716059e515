import tensorflow as tf

from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
#如果原始脚本使用Tensorflow接口计算梯度，例如grads = tf.gradients(loss, tvars)，在构造完NPUDistributedOptimizer后，需要替换成NPUDistributedOptimizer的compute_gradients和apply_gradients方法。
def cnn_model_fn(features,labels,mode):    
  #搭建网络   
  xxx    
  #计算loss
  xxx    

  #Configure the TrainingOp(for TRAIN mode)    
  if mode == tf.estimator.ModeKeys.TRAIN:      
    optimizer = tf.train.GradientDescentOptimizer(learning_rate=0.001)#使用SGD优化器
    distributedOptimizer=NPUDistributedOptimizer(optimizer)#使用NPU分布式计算，更新梯度
    train_op=distributedOptimizer.minimize(loss=loss,global_step=tf.train.get_global_step())#最小化loss
    return tf.estimator.EstimatorSpec(mode=mode,loss=loss,train_op=train_op)
