"""Which strategy a run uses."""

import tensorflow as tf


def get_distribution_strategy(distribution_strategy='default', num_gpus=0):
  """None for one device, mirrored variables for several."""
  if distribution_strategy == 'off' or num_gpus < 2:
    return None
  if distribution_strategy in ('default', 'mirrored'):
    return tf.distribute.MirroredStrategy(
        devices=['device:GPU:%d' % i for i in range(num_gpus)])
  raise ValueError('Unrecognized distribution strategy: %r' % distribution_strategy)
