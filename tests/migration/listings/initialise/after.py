import tensorflow as tf
from absl import app as absl_app
from absl import flags
from hccl.manage.api import get_rank_size
from hccl.manage.api import get_rank_id
from npu_bridge.estimator import npu_ops
from tensorflow.core.protobuf import rewriter_config_pb2

def input_fn(input_context=None):
  dataset = tf.data.Dataset.from_tensor_slices(filenames)
  return dataset.shard(get_rank_size(),get_rank_id())

# 添加如下函数
def init_npu():
  npu_init = npu_ops.initialize_system()
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
  custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
  custom_op.name = "NpuOptimizer"
  custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
  custom_op.parameter_map["use_off_line"].b = True
  init_sess = tf.Session(config=config)
  return init_sess, npu_init

def main(_):
  # 初始化NPU，调用HCCL接口。
  init_sess, npu_init = init_npu()
  init_sess.run(npu_init)
  with logger.benchmark_context(flags.FLAGS):
    run_imagenet(flags.FLAGS)

if __name__ == '__main__':
  absl_app.run(main)
