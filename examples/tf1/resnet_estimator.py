"""A small ResNet on made-up images, with tf.estimator: the shape of many TensorFlow 1 image classifiers.

    python resnet_estimator.py --model_dir runs/resnet --train_epochs 2

The images are coloured noise with a class-dependent stripe, so a network that learns shows it within two epochs.
"""

from __future__ import absolute_import, division, print_function

import functools
import math
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app as absl_app
from absl import flags

IMAGE_SIZE = 16
NUM_CHANNELS = 3
NUM_CLASSES = 4
NUM_IMAGES = {"train": 400, "validation": 100}
SHUFFLE_BUFFER = 512

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("model_dir", None, "Where checkpoints and summaries go; a new temporary directory if not set.")
    flags.DEFINE_integer("batch_size", 32, "Images in a step, over all replicas.")
    flags.DEFINE_integer("train_epochs", 2, "Passes over the training images.")
    flags.DEFINE_integer("epochs_between_evals", 1, "Passes between two evaluations.")
    flags.DEFINE_integer("blocks", 1, "Residual blocks in each of the three stages.")
    flags.DEFINE_integer("num_gpus", 0, "Devices to train on.")
    flags.DEFINE_float("learning_rate", 0.2, "For a batch of 256; scaled with the batch.")
    flags.DEFINE_float("weight_decay", 1e-4, "Of the L2 penalty on convolution kernels.")
    flags.DEFINE_enum("dtype", "fp32", ["fp16", "fp32"], "fp16 turns on the mixed precision rewrite of the graph.")
    flags.DEFINE_integer("loss_scale", 128, "Fixed loss scale with fp16.")
    flags.DEFINE_integer("seed", 7, "Of the data and of the initial weights.")


# ---- data


def make_images(split, seed):
    """Noise with a brighter stripe whose place is the class."""
    random = np.random.RandomState(seed if split == "train" else seed + 1)
    labels = random.randint(0, NUM_CLASSES, size=NUM_IMAGES[split]).astype(np.int32)
    images = random.uniform(0, 0.5, size=(len(labels), IMAGE_SIZE, IMAGE_SIZE, NUM_CHANNELS)).astype(np.float32)
    for image, label in zip(images, labels):
        image[:, label * 4 : label * 4 + 4, :] += 0.5
    return images, labels


def parse_record(image, label, is_training, dtype):
    """Augment one image and centre its values."""
    if is_training:
        image = tf.image.resize_with_crop_or_pad(image, IMAGE_SIZE + 2, IMAGE_SIZE + 2)
        image = tf.image.random_crop(image, [IMAGE_SIZE, IMAGE_SIZE, NUM_CHANNELS])
    image = tf.cast((image - 0.375) * 2.0, dtype)
    return image, label


def process_record_dataset(
    dataset,
    is_training,
    batch_size,
    shuffle_buffer,
    parse_record_fn,
    num_epochs=1,
    dtype=tf.float32,
    drop_remainder=False,
):
    """From single records to batches, the same for every data set."""
    dataset = dataset.prefetch(buffer_size=batch_size)
    if is_training:
        dataset = dataset.shuffle(buffer_size=shuffle_buffer)
    dataset = dataset.repeat(num_epochs)
    dataset = dataset.map(
        lambda image, label: parse_record_fn(image, label, is_training, dtype),
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
    )
    dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)
    return dataset.prefetch(buffer_size=tf.data.experimental.AUTOTUNE)


def input_fn(is_training, batch_size, num_epochs=1, dtype=tf.float32, input_context=None, drop_remainder=False, seed=7):
    """The images of a split; each input pipeline of a distributed run reads its own share."""
    split = "train" if is_training else "validation"
    dataset = tf.data.Dataset.from_tensor_slices(make_images(split, seed))
    if input_context:
        tf.logging.info(
            "Sharding the dataset: input_pipeline_id=%d num_input_pipelines=%d",
            input_context.input_pipeline_id,
            input_context.num_input_pipelines,
        )
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return process_record_dataset(
        dataset=dataset,
        is_training=is_training,
        batch_size=batch_size,
        shuffle_buffer=SHUFFLE_BUFFER,
        parse_record_fn=parse_record,
        num_epochs=num_epochs,
        dtype=dtype,
        drop_remainder=drop_remainder,
    )


# ---- model


def batch_norm_relu(inputs, training):
    inputs = tf.layers.batch_normalization(inputs, momentum=0.9, epsilon=1e-5, training=training, fused=True)
    return tf.nn.relu(inputs)


def convolution(inputs, filters, kernel_size, strides):
    return tf.layers.conv2d(
        inputs=inputs,
        filters=filters,
        kernel_size=kernel_size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer=tf.variance_scaling_initializer(),
    )


def residual_block(inputs, filters, strides, training):
    """Two 3x3 convolutions with pre-activation; the shortcut is projected where the shape changes."""
    shortcut = inputs
    inputs = batch_norm_relu(inputs, training)
    if strides > 1 or shortcut.shape[-1] != filters:
        shortcut = convolution(inputs, filters, 1, strides)
    inputs = convolution(inputs, filters, 3, strides)
    inputs = batch_norm_relu(inputs, training)
    return convolution(inputs, filters, 3, 1) + shortcut


def network(features, blocks, training):
    inputs = convolution(features, 16, 3, 1)
    inputs = tf.identity(inputs, "initial_conv")
    for stage, filters in enumerate([16, 32, 64]):
        for number in range(blocks):
            strides = 2 if stage > 0 and number == 0 else 1
            inputs = residual_block(inputs, filters, strides, training)
    inputs = batch_norm_relu(inputs, training)
    inputs = tf.reduce_mean(inputs, axis=[1, 2], name="final_reduce_mean")
    return tf.layers.dense(inputs, NUM_CLASSES, name="final_dense")


def learning_rate_with_decay(base, batch_size, global_step):
    """The rate falls tenfold after two thirds of the images that were asked for."""
    batches = NUM_IMAGES["train"] / batch_size
    boundaries = [int(batches * max(1, FLAGS.train_epochs * 2 // 3))]
    rate = base * batch_size / 256
    return tf.train.piecewise_constant(global_step, boundaries, [rate, rate * 0.1])


def resnet_model_fn(features, labels, mode, params):
    """What Estimator runs in each of its three modes."""
    training = mode == tf.estimator.ModeKeys.TRAIN
    logits = tf.cast(network(features, params["blocks"], training), tf.float32)
    predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits, name="softmax_tensor")}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions)

    cross_entropy = tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=labels)
    kernels = [tf.nn.l2_loss(v) for v in tf.trainable_variables() if "batch_normalization" not in v.name]
    loss = cross_entropy + params["weight_decay"] * tf.add_n(kernels)

    train_op = None
    if training:
        global_step = tf.train.get_or_create_global_step()
        learning_rate = learning_rate_with_decay(params["learning_rate"], params["batch_size"], global_step)
        optimizer = tf.train.MomentumOptimizer(learning_rate=learning_rate, momentum=0.9)
        if params["dtype"] == "fp16":
            optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
                optimizer, loss_scale=params["loss_scale"]
            )
        minimize_op = optimizer.minimize(loss, global_step)
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        train_op = tf.group(minimize_op, update_ops)

    accuracy = tf.metrics.accuracy(labels, predictions["classes"])
    tf.identity(accuracy[1], name="train_accuracy")
    return tf.estimator.EstimatorSpec(
        mode=mode, predictions=predictions, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy}
    )


# ---- running


def get_distribution_strategy(num_gpus):
    """No strategy for one device or none, mirrored variables for several."""
    if num_gpus < 2:
        return None
    return tf.distribute.MirroredStrategy(devices=["device:GPU:%d" % i for i in range(num_gpus)])


def per_replica_batch_size(batch_size, num_gpus):
    if num_gpus <= 1:
        return batch_size
    if batch_size % num_gpus:
        raise ValueError("batch_size must be a multiple of num_gpus")
    return batch_size // num_gpus


def resnet_main(flags_obj):
    """Train and evaluate in turns; the result of the last evaluation."""
    model_dir = flags_obj.model_dir or tempfile.mkdtemp(prefix="resnet_")
    session_config = tf.ConfigProto(
        inter_op_parallelism_threads=2, intra_op_parallelism_threads=2, allow_soft_placement=True
    )
    distribution_strategy = get_distribution_strategy(flags_obj.num_gpus)
    run_config = tf.estimator.RunConfig(
        model_dir,
        flags_obj.seed,
        train_distribute=distribution_strategy,
        session_config=session_config,
        save_checkpoints_secs=60 * 60 * 24,
        save_checkpoints_steps=None,
    )
    classifier = tf.estimator.Estimator(
        model_fn=resnet_model_fn,
        model_dir=model_dir,
        config=run_config,
        params={
            "blocks": flags_obj.blocks,
            "batch_size": flags_obj.batch_size,
            "learning_rate": flags_obj.learning_rate,
            "weight_decay": flags_obj.weight_decay,
            "dtype": flags_obj.dtype,
            "loss_scale": flags_obj.loss_scale,
        },
    )
    batch_size = per_replica_batch_size(flags_obj.batch_size, flags_obj.num_gpus)
    train_hooks = [tf.train.LoggingTensorHook(["train_accuracy"], every_n_iter=50)]

    def input_fn_train(num_epochs, input_context=None):
        return input_fn(
            is_training=True,
            batch_size=batch_size,
            num_epochs=num_epochs,
            input_context=input_context,
            drop_remainder=False,
            seed=flags_obj.seed,
        )

    def input_fn_eval():
        return input_fn(is_training=False, batch_size=batch_size, seed=flags_obj.seed)

    loops = math.ceil(flags_obj.train_epochs / flags_obj.epochs_between_evals)
    schedule = [flags_obj.epochs_between_evals for _ in range(loops)]
    schedule[-1] = flags_obj.train_epochs - sum(schedule[:-1])

    eval_results = {}
    for cycle_index, num_train_epochs in enumerate(schedule):
        tf.logging.info("Starting cycle: %d/%d", cycle_index, loops)
        classifier.train(input_fn=functools.partial(input_fn_train, num_train_epochs), hooks=train_hooks)
        tf.logging.info("Starting to evaluate.")
        eval_results = classifier.evaluate(input_fn=input_fn_eval)
        print("epoch %d: accuracy %.3f" % (sum(schedule[: cycle_index + 1]), eval_results["accuracy"]))
    return eval_results


def main(_):
    os.environ["TF_GPU_THREAD_MODE"] = "gpu_private"
    results = resnet_main(FLAGS)
    print("final accuracy %.3f, loss %.3f" % (results["accuracy"], results["loss"]))


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.WARN)
    define_flags()
    absl_app.run(main)
