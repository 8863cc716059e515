import tensorflow as tf
from absl import app as absl_app
from absl import flags

def input_fn(input_context=None):
  dataset = tf.data.Dataset.from_tensor_slices(filenames)
  return dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

def main(_):
  with logger.benchmark_context(flags.FLAGS):
    run_imagenet(flags.FLAGS)

if __name__ == '__main__':
  absl_app.run(main)
