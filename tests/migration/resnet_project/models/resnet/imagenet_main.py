"""Runs a ResNet on a folder of ImageNet records."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import os

from absl import app as absl_app
from absl import flags
import tensorflow as tf

from models.resnet import run_loop

NUM_IMAGES = {
    'train': 1281167,
    'validation': 50000,
}
_NUM_TRAIN_FILES = 1024
_SHUFFLE_BUFFER = 10000


def get_filenames(is_training, data_dir):
  """Return filenames for dataset."""
  if is_training:
    return [
        os.path.join(data_dir, 'train-%05d-of-01024' % i)
        for i in range(_NUM_TRAIN_FILES)]
  else:
    return [
        os.path.join(data_dir, 'validation-%05d-of-00128' % i)
        for i in range(128)]


def parse_record(raw_record, is_training, dtype):
  """One serialized Example becomes an image and a label."""
  parsed = tf.io.parse_single_example(raw_record, {
      'image/encoded': tf.io.FixedLenFeature([], tf.string),
      'image/class/label': tf.io.FixedLenFeature([], tf.int64),
  })
  image = tf.image.decode_jpeg(parsed['image/encoded'], channels=3)
  image = tf.image.resize_with_crop_or_pad(image, 224, 224)
  return tf.cast(image, dtype), tf.cast(parsed['image/class/label'], tf.int32)


def input_fn(is_training,
             data_dir,
             batch_size,
             num_epochs=1,
             dtype=tf.float32,
             parse_record_fn=parse_record,
             input_context=None,
             drop_remainder=False):
  """Input function which provides batches for train or eval."""
  filenames = get_filenames(is_training, data_dir)
  dataset = tf.data.Dataset.from_tensor_slices(filenames)

  if input_context:
    dataset = dataset.shard(input_context.num_input_pipelines,
                            input_context.input_pipeline_id)

  if is_training:
    # Shuffle the input files
    dataset = dataset.shuffle(buffer_size=_NUM_TRAIN_FILES)

  # cycle_length = 10 means that up to 10 files will be read and deserialized in
  # parallel.
  dataset = dataset.interleave(
      tf.data.TFRecordDataset,
      cycle_length=10,
      num_parallel_calls=tf.data.experimental.AUTOTUNE)

  return run_loop.process_record_dataset(
      dataset=dataset,
      is_training=is_training,
      batch_size=batch_size,
      shuffle_buffer=_SHUFFLE_BUFFER,
      parse_record_fn=parse_record_fn,
      num_epochs=num_epochs,
      dtype=dtype,
      drop_remainder=drop_remainder,
  )


def imagenet_model_fn(features, labels, mode, params):
  """Our model_fn for ResNet to be used with our Estimator."""
  learning_rate_fn = run_loop.learning_rate_with_decay(
      batch_size=params['batch_size'],
      num_images=NUM_IMAGES['train'], boundary_epochs=[30, 60, 80, 90],
      decay_rates=[1, 0.1, 0.01, 0.001, 1e-4], base_lr=.128, warmup=True)
  return run_loop.resnet_model_fn(
      features=features,
      labels=labels,
      mode=mode,
      resnet_size=params['resnet_size'],
      weight_decay=1e-4,
      learning_rate_fn=learning_rate_fn,
      momentum=0.9,
      loss_scale=params['loss_scale'],
      dtype=params['dtype'],
      fine_tune=params['fine_tune']
  )


def run_imagenet(flags_obj):
  """Run ResNet ImageNet training and eval loop."""
  return run_loop.resnet_main(flags_obj, imagenet_model_fn, input_fn, 'ImageNet', shape=[224, 224, 3])


def main(_):
  run_imagenet(flags.FLAGS)


if __name__ == '__main__':
  tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
  absl_app.run(main)
