import tensorflow as tf

def resnet_model_fn(features, labels, mode, dtype=tf.float32):
  # 检查输入特征/图像是否与用于计算的数据类型一致
  if features.dtype != dtype:
    # 将特征的数据类型改成与dtype一致
    features = tf.cast(features, dtype)
