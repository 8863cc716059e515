import tensorflow as tf
from absl import app as absl_app
from absl import flags
from hccl.manage.api import get_rank_id
from hccl.manage.api import get_rank_size
from npu_bridge.estimator import npu_ops
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

def input_fn(input_context=None):
  dataset = tf.data.Dataset.from_tensor_slices(filenames)
  return dataset.shard(get_rank_size(), get_rank_id())


def init_npu():
  """A session, and the operation that starts collective communication when it is run."""
  npu_init = npu_ops.initialize_system()
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
  custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
  custom_op.name = "NpuOptimizer"
  custom_op.parameter_map["use_off_line"].b = True
  custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
  init_sess = tf.Session(config=config)
  return init_sess, npu_init

def main(_):
  init_sess, npu_init = init_npu()
  npu_shutdown = npu_ops.shutdown_system()
  init_sess.run(npu_init)
  with logger.benchmark_context(flags.FLAGS):
    run_imagenet(flags.FLAGS)
  init_sess.run(npu_shutdown)
  init_sess.close()

if __name__ == '__main__':
  absl_app.run(main)
