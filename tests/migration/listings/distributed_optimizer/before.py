import tensorflow as tf

def cnn_model_fn(features,labels,mode):
  #搭建网络
  xxx
  #计算loss
  xxx

  #Configure the TrainingOp(训练模式)
  if mode == tf.estimator.ModeKeys.TRAIN:
    optimizer=tf.train.GradientDescentOptimizer(learning_rate=0.001)#使用SGD优化器
    train_op=optimizer.minimize(loss=loss,global_step=tf.train.get_global_step())#最小化loss
    return tf.estimator.EstimatorSpec(mode=mode,loss=loss,train_op=train_op)
