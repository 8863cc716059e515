import tensorflow as tf
from hccl.manage.api import get_rank_id
from hccl.manage.api import get_rank_size
from npu_bridge.estimator import npu_ops
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

def init_npu():
  npu_init = npu_ops.initialize_system()
  config = tf.ConfigProto()
  custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
  custom_op.name = "NpuOptimizer"
  custom_op.parameter_map["use_off_line"].b = True
  config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
  init_sess = tf.Session(config=config)
  return init_sess, npu_init

def input_fn():
  return tf.data.Dataset.from_tensor_slices(filenames).shard(get_rank_size(), get_rank_id())

def resnet_main(flags_obj, model_function, schedule):
  init_sess, npu_init = init_npu()
  init_sess.run(npu_init)
  classifier = NPUEstimator(
      model_fn=model_function, config=NPURunConfig(model_dir=flags_obj.model_dir, save_checkpoints_steps=100))
  for cycle_index, num_train_epochs in enumerate(schedule):
    classifier.train(input_fn=input_fn, max_steps=flags_obj.max_train_steps)
    eval_results = classifier.evaluate(input_fn=input_fn, steps=flags_obj.max_train_steps)
  return eval_results
