import tensorflow as tf

def resnet_model_fn(features, labels, mode, dtype=tf.float32):
  assert features.dtype == dtype
