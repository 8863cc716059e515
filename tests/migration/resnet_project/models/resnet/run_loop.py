"""What the ResNet trainings of all data sets share: input processing, the model function, the loop.

The structure is that of the guide's ResNet: two-space indentation, arguments passed through several functions, the
strategy built in another module, precision decided by a flag.
"""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import functools
import math

from absl import flags
import tensorflow as tf

from models.misc import distribution
from models.resnet import network


################################################################################
# Input
################################################################################
def process_record_dataset(dataset,
                           is_training,
                           batch_size,
                           shuffle_buffer,
                           parse_record_fn,
                           num_epochs=1,
                           dtype=tf.float32,
                           drop_remainder=False):
  """Turn records into batches.

  Args:
    dataset: records, still serialized.
    drop_remainder: whether the last batch of an epoch is dropped if it is short.
  """
  # Prefetches a batch at a time to smooth out the time to read records.
  dataset = dataset.prefetch(buffer_size=batch_size)
  if is_training:
    # Shuffles records before repeating to respect epoch boundaries.
    dataset = dataset.shuffle(buffer_size=shuffle_buffer)

  # Repeats the dataset for the number of epochs to train.
  dataset = dataset.repeat(num_epochs)

  # Parses the raw records into images and labels.
  dataset = dataset.map(
      lambda value: parse_record_fn(value, is_training, dtype),
      num_parallel_calls=tf.data.experimental.AUTOTUNE)
  dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)

  # Operations between the final prefetch and the get_next call to the iterator
  # will happen synchronously during run time.
  dataset = dataset.prefetch(buffer_size=tf.data.experimental.AUTOTUNE)
  return dataset


################################################################################
# Model
################################################################################
def learning_rate_with_decay(batch_size, num_images, boundary_epochs, decay_rates, base_lr=0.1, warmup=False):
  """A rate that rises for five epochs, if wanted, and then falls by steps."""
  initial_learning_rate = base_lr * batch_size / 256
  batches_per_epoch = num_images / batch_size
  boundaries = [int(batches_per_epoch * epoch) for epoch in boundary_epochs]
  vals = [initial_learning_rate * decay for decay in decay_rates]

  def learning_rate_fn(global_step):
    lr = tf.compat.v1.train.piecewise_constant(global_step, boundaries, vals)
    if warmup:
      warmup_steps = int(batches_per_epoch * 5)
      warmup_lr = (
          initial_learning_rate * tf.cast(global_step, tf.float32) / tf.cast(
              warmup_steps, tf.float32))
      return tf.cond(pred=global_step < warmup_steps,
                     true_fn=lambda: warmup_lr,
                     false_fn=lambda: lr)
    return lr

  return learning_rate_fn


def resnet_model_fn(features, labels, mode, resnet_size, weight_decay, learning_rate_fn, momentum, loss_scale,
                    dtype=tf.float32, fine_tune=False):
  """Model function of the Estimator, for each of its modes."""
  model = network.Model(resnet_size, dtype=dtype)
  logits = model(features, mode == tf.estimator.ModeKeys.TRAIN)

  # This acts as a no-op if the logits are already in fp32.
  logits = tf.cast(logits, tf.float32)
  predictions = {
      'classes': tf.argmax(input=logits, axis=1),
      'probabilities': tf.nn.softmax(logits, name='softmax_tensor')
  }
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions)

  cross_entropy = tf.compat.v1.losses.sparse_softmax_cross_entropy(logits=logits, labels=labels)
  l2_loss = weight_decay * tf.add_n(
      [tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in tf.compat.v1.trainable_variables()])
  loss = cross_entropy + l2_loss

  if mode == tf.estimator.ModeKeys.TRAIN:
    global_step = tf.compat.v1.train.get_or_create_global_step()
    learning_rate = learning_rate_fn(global_step)

    # Create a tensor named learning_rate for logging purposes
    tf.identity(learning_rate, name='learning_rate')

    optimizer = tf.compat.v1.train.MomentumOptimizer(
        learning_rate=learning_rate,
        momentum=momentum
    )

    fp16_implementation = getattr(flags.FLAGS, 'fp16_implementation', None)
    if fp16_implementation == 'graph_rewrite':
      optimizer = (
          tf.compat.v1.train.experimental.enable_mixed_precision_graph_rewrite(
              optimizer, loss_scale=loss_scale))

    def _dense_grad_filter(gvs):
      """Only the dense layer is trained when fine tuning."""
      return [(g, v) for g, v in gvs if 'dense' in v.name]

    if loss_scale != 1 and fp16_implementation != 'graph_rewrite':
      # Intermediate values of fp16 gradients underflow; a larger loss keeps
      # them in range.
      scaled_grad_vars = optimizer.compute_gradients(loss * loss_scale)
      if fine_tune:
        scaled_grad_vars = _dense_grad_filter(scaled_grad_vars)
      unscaled_grad_vars = [(grad / loss_scale, var)
                            for grad, var in scaled_grad_vars]
      minimize_op = optimizer.apply_gradients(unscaled_grad_vars, global_step)
    else:
      grad_vars = optimizer.compute_gradients(loss)
      if fine_tune:
        grad_vars = _dense_grad_filter(grad_vars)
      minimize_op = optimizer.apply_gradients(grad_vars, global_step)

    update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    train_op = tf.group(minimize_op, update_ops)
  else:
    train_op = None

  accuracy = tf.compat.v1.metrics.accuracy(labels, predictions['classes'])
  metrics = {'accuracy': accuracy}

  # Create a tensor named train_accuracy for logging purposes
  tf.identity(accuracy[1], name='train_accuracy')
  return tf.estimator.EstimatorSpec(
      mode=mode,
      predictions=predictions,
      loss=loss,
      train_op=train_op,
      eval_metric_ops=metrics)


################################################################################
# Loop
################################################################################
def resnet_main(flags_obj, model_function, input_function, dataset_name, shape=None):
  """Trains and evaluates in turns.

  Returns:
    The results of the last evaluation.
  """
  # allow_soft_placement = True is required for several devices and does not
  # harm otherwise.
  session_config = tf.compat.v1.ConfigProto(
      inter_op_parallelism_threads=flags_obj.inter_op_parallelism_threads,
      intra_op_parallelism_threads=flags_obj.intra_op_parallelism_threads,
      allow_soft_placement=True)

  distribution_strategy = distribution.get_distribution_strategy(
      distribution_strategy=flags_obj.distribution_strategy,
      num_gpus=flags_obj.num_gpus)

  # Creates a `RunConfig` that checkpoints every 24 hours
  run_config = tf.estimator.RunConfig(
      train_distribute=distribution_strategy,
      session_config=session_config,
      save_checkpoints_secs=60 * 60 * 24,
      save_checkpoints_steps=None)

  classifier = tf.estimator.Estimator(
      model_fn=model_function, model_dir=flags_obj.model_dir, config=run_config,
      params={
          'resnet_size': int(flags_obj.resnet_size),
          'batch_size': flags_obj.batch_size,
          'loss_scale': flags_obj.loss_scale,
          'dtype': flags_obj.dtype,
          'fine_tune': flags_obj.fine_tune,
      })

  def input_fn_train(num_epochs, input_context=None):
    return input_function(
        is_training=True,
        data_dir=flags_obj.data_dir,
        batch_size=flags_obj.batch_size,
        num_epochs=num_epochs,
        dtype=flags_obj.dtype,
        input_context=input_context)

  def input_fn_eval():
    return input_function(
        is_training=False,
        data_dir=flags_obj.data_dir,
        batch_size=flags_obj.batch_size,
        num_epochs=1,
        dtype=flags_obj.dtype)

  # train_epochs = 25 and epochs_between_evals = 10 make [10, 10, 5]
  n_loops = math.ceil(flags_obj.train_epochs / flags_obj.epochs_between_evals)
  schedule = [flags_obj.epochs_between_evals for _ in range(int(n_loops))]
  schedule[-1] = flags_obj.train_epochs - sum(schedule[:-1])  # over counting.

  for cycle_index, num_train_epochs in enumerate(schedule):
    tf.compat.v1.logging.info('Starting cycle: %d/%d', cycle_index, int(n_loops))
    if num_train_epochs:
      classifier.train(
          input_fn=functools.partial(input_fn_train, num_train_epochs),
          max_steps=flags_obj.max_train_steps)

    tf.compat.v1.logging.info('Starting to evaluate.')
    eval_results = classifier.evaluate(input_fn=input_fn_eval,
                                       steps=flags_obj.max_train_steps)
    if eval_results['accuracy'] >= flags_obj.stop_threshold:
      break

  return eval_results
