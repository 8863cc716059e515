import tensorflow as tf

def resnet_main(flags_obj, distribution_strategy, session_config):
  run_config = tf.estimator.RunConfig(
      train_distribute=distribution_strategy,
      session_config=session_config,
      save_checkpoints_secs=60 * 60 * 24,
      save_checkpoints_steps=None)
  return run_config
