import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig

config=NPURunConfig(
  model_dir=FLAGS.model_dir, 
  save_checkpoints_steps=FLAGS.save_checkpoints_steps,
  session_config=tf.ConfigProto(allow_soft_placement=True,log_device_placement=False))
