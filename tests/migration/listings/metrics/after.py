import os
import tensorflow as tf
from npu_bridge.hccl import hccl_ops

def resnet_model_fn(mode, labels, logits, predictions):
  accuracy = tf.compat.v1.metrics.accuracy(tf.cast(labels, tf.float32), predictions['classes'])
  accuracy_top_5 = tf.compat.v1.metrics.mean(
      tf.nn.in_top_k(predictions=logits, targets=labels, k=5, name='top_5_op'))
  # 用于分布式训练时的 accuracy 计算
  rank_size = int(os.getenv('RANK_SIZE'))
  newaccuracy = (hccl_ops.allreduce(accuracy[0], "sum") / rank_size, accuracy[1])
  newaccuracy_top_5 = (hccl_ops.allreduce(accuracy_top_5[0], "sum") / rank_size, accuracy_top_5[1])

  metrics = {'accuracy': newaccuracy,
             'accuracy_top_5': newaccuracy_top_5}
  return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions, eval_metric_ops=metrics)
