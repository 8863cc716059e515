import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig

def resnet_main(flags_obj, distribution_strategy, session_config):
  run_config = NPURunConfig(
      session_config=session_config,
      save_checkpoints_secs=60 * 60 * 24,
      save_checkpoints_steps=None,
      precision_mode="allow_mix_precision",
      hcom_parallel=True, enable_data_pre_proc=True, iterations_per_loop=100)
  return run_config
