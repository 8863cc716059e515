import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig

def resnet_main(flags_obj, model_function, num_workers, warm_start_settings):
  run_config = NPURunConfig(model_dir=flags_obj.model_dir, save_checkpoints_steps=115200)
  classifier = tf.estimator.Estimator(
      model_fn=model_function, model_dir=flags_obj.model_dir, config=run_config,
      warm_start_from=warm_start_settings, params={
          'resnet_size': int(flags_obj.resnet_size),
          'data_format': flags_obj.data_format,
          'batch_size': flags_obj.batch_size,
          'resnet_version': int(flags_obj.resnet_version),
          'loss_scale': flags_core.get_loss_scale(flags_obj,
                                                  default_for_fp16=128),
          'dtype': flags_core.get_tf_dtype(flags_obj),
          'fine_tune': flags_obj.fine_tune,
          'num_workers': num_workers,
      })
  return classifier
