import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig

def resnet_main(flags_obj, distribution_strategy, session_config):
  run_config = NPURunConfig(
      model_dir=flags_obj.model_dir,
      session_config=session_config,
      save_checkpoints_steps=115200,
      enable_data_pre_proc=True,
      iterations_per_loop=100,
      # enable_auto_mix_precision=True,
      # 设置为混合精度模式
      precision_mode='allow_mix_precision',
      hcom_parallel=True
  )
  return run_config
