import os
import tensorflow as tf
from npu_bridge.hccl import hccl_ops

def resnet_model_fn(mode, labels, logits, predictions):
  accuracy = tf.compat.v1.metrics.accuracy(tf.cast(labels, tf.float32), predictions['classes'])
  accuracy_top_5 = tf.compat.v1.metrics.mean(
      tf.nn.in_top_k(predictions=logits, targets=labels, k=5, name='top_5_op'))

  metrics = {'accuracy': (hccl_ops.allreduce(accuracy[0], "sum") / int(os.getenv("RANK_SIZE", "1")), accuracy[1]),
             'accuracy_top_5': (hccl_ops.allreduce(accuracy_top_5[0], "sum") / int(os.getenv("RANK_SIZE", "1")), accuracy_top_5[1])}
  return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions, eval_metric_ops=metrics)
