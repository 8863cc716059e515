import os
import tensorflow as tf

def resnet_model_fn(mode, labels, logits, predictions):
  accuracy = tf.compat.v1.metrics.accuracy(labels, predictions['classes'])
  accuracy_top_5 = tf.compat.v1.metrics.mean(
      tf.nn.in_top_k(predictions=logits, targets=labels, k=5, name='top_5_op'))

  metrics = {'accuracy': accuracy,
             'accuracy_top_5': accuracy_top_5}
  return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions, eval_metric_ops=metrics)
